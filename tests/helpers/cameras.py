"""Parameters of every camera model that there is, for tests that run over all of them."""

PARAMS = {
    "SIMPLE_PINHOLE": (700.0, 10.0, -5.0),
    "PINHOLE": (700.0, 650.0, 10.0, -5.0),
    "SIMPLE_RADIAL": (700.0, 10.0, -5.0, -0.1),
    "RADIAL": (700.0, 10.0, -5.0, -0.1, 0.05),
    "OPENCV": (700.0, 650.0, 10.0, -5.0, -0.1, 0.05, 0.01, -0.02),
    "OPENCV5": (700.0, 650.0, 10.0, -5.0, -0.1, 0.05, 0.01, -0.02, 0.02),
    "FULL_OPENCV": (700.0, 650.0, 10.0, -5.0, -0.1, 0.05, 0.01, -0.02, 0.02, 0.1, -0.03, 0.01),
    "SIMPLE_RADIAL_FISHEYE": (700.0, 10.0, -5.0, -0.1),
    "RADIAL_FISHEYE": (700.0, 10.0, -5.0, -0.1, 0.05),
    "OPENCV_FISHEYE": (700.0, 650.0, 10.0, -5.0, -0.1, 0.05, 0.1, -0.2),
}
