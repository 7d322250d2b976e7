"""OpenCV's shapes and lists where matches are taken."""

from types import SimpleNamespace

import numpy as np
import pytest

import problm
from problm.vision.absolute_pose.simulate import one_view
from problm.vision.two_view.matches import opencv_matches
from problm.vision.two_view.simulate import two_views


def keypoints(x):
    return [SimpleNamespace(pt=tuple(row)) for row in x.tolist()]


def test_points_of_opencvs_shape_and_keypoints():
    views = two_views(100, inliers=0.8, seed=1)
    plain = problm.essential_matrix(views.x1, views.x2, views.K)
    for x1, x2 in ((views.x1[:, None], views.x2[:, None]), (keypoints(views.x1), keypoints(views.x2))):
        np.testing.assert_array_equal(problm.essential_matrix(x1, x2, views.K).R, plain.R)
    view = one_view(60, seed=2)
    pose = problm.absolute_pose(keypoints(view.points2d), view.points3d, view.K)
    np.testing.assert_array_equal(pose.R, problm.absolute_pose(view.points2d, view.points3d, view.K).R)


def test_lists_of_matches():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 100, (5, 2)), rng.uniform(0, 100, (4, 2))
    found = [SimpleNamespace(queryIdx=i, trainIdx=j) for i, j in ((4, 0), (1, 3))]
    for matches in (found, [[m] for m in found], [*([m] for m in found), []]):
        x1, x2 = opencv_matches(keypoints(a), keypoints(b), matches)
        np.testing.assert_array_equal(x1, a[[4, 1]])
        np.testing.assert_array_equal(x2, b[[0, 3]])
    with pytest.raises(ValueError, match="keypoints2 has 3"):
        opencv_matches(keypoints(a), keypoints(b[:3]), found)


def test_opencvs_own_objects():
    cv2 = pytest.importorskip("cv2")
    first = [cv2.KeyPoint(float(k), 2.0, 1.0) for k in range(3)]
    x1, x2 = opencv_matches(first, first, [cv2.DMatch(2, 1, 0.5)])
    assert x1.tolist() == [[2.0, 2.0]]
    assert x2.tolist() == [[1.0, 2.0]]
