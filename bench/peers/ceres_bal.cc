// Ceres with the cost of its own example for "Bundle Adjustment in the Large": reads a problem, writes a summary.
//
//   g++ -O3 -march=native -I/usr/include/eigen3 ceres_bal.cc -o ceres_bal -lceres -lglog -lcholmod
//   ceres_bal SOLVER FTOL ITERATIONS HUBER IN OUT   (HUBER: width in pixels, 0 for squares)
//
// IN, binary: int64 cameras, points, observations; per observation int64 camera, int64 point, double x, y; then the
// doubles of the cameras (9: angle-axis, translation, f, k1, k2; looking along +z) and of the points (3). OUT: the
// parameters.
#include <ceres/ceres.h>
#include <ceres/rotation.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

struct Error {
  double x, y;
  template <typename T>
  bool operator()(const T* const camera, const T* const point, T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(camera, point, p);
    const T z = p[2] + camera[5];
    const T u = (p[0] + camera[3]) / z, v = (p[1] + camera[4]) / z;
    const T q = u * u + v * v;
    const T scale = camera[6] * (1.0 + q * (camera[7] + camera[8] * q));
    residuals[0] = scale * u - x;
    residuals[1] = scale * v - y;
    return true;
  }
};

static double cpu() { return double(std::clock()) / CLOCKS_PER_SEC; }

struct Note : ceres::IterationCallback {
  double began;
  ceres::CallbackReturnType operator()(const ceres::IterationSummary& s) override {
    std::printf("iteration %d %.10e %.4f %d\n", s.iteration, s.cost, cpu() - began, int(s.step_is_successful));
    return ceres::SOLVER_CONTINUE;
  }
};

int main(int, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FILE* in = std::fopen(argv[5], "rb");
  int64_t n[3];
  if (!in || std::fread(n, 8, 3, in) != 3) return 1;
  struct Row { int64_t camera, point; double x, y; };
  std::vector<Row> rows(n[2]);
  std::vector<double> cameras(9 * n[0]), points(3 * n[1]);
  if (std::fread(rows.data(), sizeof(Row), rows.size(), in) != rows.size()) return 1;
  if (std::fread(cameras.data(), 8, cameras.size(), in) != cameras.size()) return 1;
  if (std::fread(points.data(), 8, points.size(), in) != points.size()) return 1;
  std::fclose(in);

  const double began = cpu(), huber = std::atof(argv[4]);
  ceres::Problem problem;
  ceres::Solver::Options options;
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (const Row& row : rows) {
    auto* cost = new ceres::AutoDiffCostFunction<Error, 2, 9, 3>(new Error{row.x, row.y});
    problem.AddResidualBlock(cost, huber > 0 ? new ceres::HuberLoss(huber) : nullptr, &cameras[9 * row.camera],
                             &points[3 * row.point]);
    ordering->AddElementToGroup(&points[3 * row.point], 0);
    ordering->AddElementToGroup(&cameras[9 * row.camera], 1);
  }
  options.linear_solver_ordering = ordering;
  ceres::StringToLinearSolverType(argv[1], &options.linear_solver_type);
  if (std::string(argv[1]) == "ITERATIVE_SCHUR") options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.function_tolerance = std::atof(argv[2]);
  options.gradient_tolerance = options.parameter_tolerance = 1e-12;
  options.max_num_iterations = std::atoi(argv[3]);
  options.num_threads = 1;
  options.logging_type = ceres::SILENT;
  Note note;
  note.began = began;
  options.callbacks.push_back(&note);
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  std::printf("done %.10e %.10e %.4f %d %d %d\n", summary.initial_cost, summary.final_cost, cpu() - began,
              summary.num_successful_steps, summary.num_unsuccessful_steps, int(summary.termination_type));
  FILE* out = std::fopen(argv[6], "wb");
  std::fwrite(cameras.data(), 8, cameras.size(), out);
  std::fwrite(points.data(), 8, points.size(), out);
  std::fclose(out);
  return 0;
}
