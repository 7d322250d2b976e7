"""ProBLM: non-linear least squares for very many residuals and few parameters.

Progressive-batching Levenberg-Marquardt computes steps on a small random batch and takes a step when a statistical test
says that the cost over *all* residuals falls. The batch grows until it holds all residuals, so the answer is that of
LM, for a fraction of the work.

Names are loaded on first use, so ``import problm`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .support.version import __version__

_WHERE = {
    "least_squares": "api.least_squares",
    "curve_fit": "api.curve_fit",
    "fit": "api.fit",
    "find_peaks_model": "api.find_peaks",
    "fit_counts": "api.fit_counts",
    "fit_censored": "api.likelihoods.censored",
    "fit_groups": "api.fit_groups",
    "fit_many": "api.fit_many",
    "Fits": "api.fit_many",
    "Fit": "inference.fit",
    "check_jacobian": "api.check_jacobian",
    "read_columns": "data.tables",
    "formula": "models.formula",
    "model": "models.formula",
    "models": "models",
    "separable_fit": "api.separable_fit",
    "SeparableFit": "api.separable_fit",
    "SeparableProblem": "problems.separable_nonlinear",
    "LinearSeparableProblem": "problems.separable_linear",
    "align": "vision.alignment.align",
    "Alignment": "vision.alignment.result",
    "Tracker": "vision.alignment.tracker",
    "Tracked": "vision.alignment.tracker",
    "absolute_pose": "vision.absolute_pose.estimate",
    "AbsolutePose": "vision.absolute_pose.result",
    "calibrate_camera": "vision.calibration.calibrate",
    "Calibration": "vision.calibration.result",
    "find_board": "vision.calibration.board",
    "essential_matrix": "vision.two_view.essential",
    "fundamental_matrix": "vision.two_view.fundamental",
    "homography": "vision.two_view.homography",
    "RelativePose": "vision.two_view.result",
    "Fundamental": "vision.two_view.result",
    "Homography": "vision.two_view.result",
    "register": "vision.registration.register",
    "Registration": "vision.registration.result",
    "align_rgbd": "vision.rgbd.align_rgbd",
    "RgbdMotion": "vision.rgbd.result",
    "affine_bundle_adjustment": "vision.bundle.affine",
    "bundle_adjustment": "vision.bundle.adjust",
    "Reconstruction": "vision.bundle.reconstruction",
    "Intrinsics": "vision.bundle.camera_models",
    "read_reconstruction": "vision.bundle.files",
    "write_reconstruction": "vision.bundle.files",
    "read_bal": "vision.bundle.bal",
    "write_bal": "vision.bundle.bal",
    "read_colmap": "vision.bundle.colmap",
    "write_colmap": "vision.bundle.colmap",
    "MapReduce": "distributed.map_reduce",
    "Partitions": "data.partitions",
    "Result": "solver.result",
    "Status": "solver.result",
    "Loss": "losses",
    "Options": "solver.options",
    "ProblmWarning": "warnings",
    "ConvergenceWarning": "warnings",
    "CovarianceWarning": "warnings",
}

__all__ = ["__version__", *sorted(_WHERE)]

if TYPE_CHECKING:
    from . import models as models
    from .api.check_jacobian import check_jacobian as check_jacobian
    from .api.curve_fit import curve_fit as curve_fit
    from .api.find_peaks import find_peaks_model as find_peaks_model
    from .api.fit import fit as fit
    from .api.fit_counts import fit_counts as fit_counts
    from .api.fit_groups import fit_groups as fit_groups
    from .api.fit_many import Fits as Fits
    from .api.fit_many import fit_many as fit_many
    from .api.least_squares import least_squares as least_squares
    from .api.likelihoods.censored import fit_censored as fit_censored
    from .api.separable_fit import SeparableFit as SeparableFit
    from .api.separable_fit import separable_fit as separable_fit
    from .data.partitions import Partitions as Partitions
    from .data.tables import read_columns as read_columns
    from .distributed.map_reduce import MapReduce as MapReduce
    from .inference.fit import Fit as Fit
    from .losses import Loss as Loss
    from .models.formula import formula as formula
    from .models.formula import model as model
    from .problems.separable_linear import LinearSeparableProblem as LinearSeparableProblem
    from .problems.separable_nonlinear import SeparableProblem as SeparableProblem
    from .solver.options import Options as Options
    from .solver.result import Result as Result
    from .solver.result import Status as Status
    from .vision.absolute_pose.estimate import absolute_pose as absolute_pose
    from .vision.absolute_pose.result import AbsolutePose as AbsolutePose
    from .vision.alignment.align import align as align
    from .vision.alignment.result import Alignment as Alignment
    from .vision.alignment.tracker import Tracked as Tracked
    from .vision.alignment.tracker import Tracker as Tracker
    from .vision.bundle.adjust import bundle_adjustment as bundle_adjustment
    from .vision.bundle.affine import affine_bundle_adjustment as affine_bundle_adjustment
    from .vision.bundle.bal import read_bal as read_bal
    from .vision.bundle.bal import write_bal as write_bal
    from .vision.bundle.camera_models import Intrinsics as Intrinsics
    from .vision.bundle.colmap import read_colmap as read_colmap
    from .vision.bundle.colmap import write_colmap as write_colmap
    from .vision.bundle.files import read_reconstruction as read_reconstruction
    from .vision.bundle.files import write_reconstruction as write_reconstruction
    from .vision.bundle.reconstruction import Reconstruction as Reconstruction
    from .vision.calibration.board import find_board as find_board
    from .vision.calibration.calibrate import calibrate_camera as calibrate_camera
    from .vision.calibration.result import Calibration as Calibration
    from .vision.registration.register import register as register
    from .vision.registration.result import Registration as Registration
    from .vision.rgbd.align_rgbd import align_rgbd as align_rgbd
    from .vision.rgbd.result import RgbdMotion as RgbdMotion
    from .vision.two_view.essential import essential_matrix as essential_matrix
    from .vision.two_view.fundamental import fundamental_matrix as fundamental_matrix
    from .vision.two_view.homography import homography as homography
    from .vision.two_view.result import Fundamental as Fundamental
    from .vision.two_view.result import Homography as Homography
    from .vision.two_view.result import RelativePose as RelativePose
    from .warnings import ConvergenceWarning as ConvergenceWarning
    from .warnings import CovarianceWarning as CovarianceWarning
    from .warnings import ProblmWarning as ProblmWarning


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'problm' has no attribute {name!r}")
    module = importlib.import_module(f".{_WHERE[name]}", __name__)
    value = module if name == _WHERE[name] and name == "models" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
