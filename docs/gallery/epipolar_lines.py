"""Two views, a third of the matches wrong

The pose is found without a start; inliers, outliers and epipolar lines are drawn by `plot`.
"""

import problm
from problm.vision.two_view.simulate import two_views

views = two_views(500, inliers=0.66, seed=4)
pose = problm.essential_matrix(views.x1, views.x2, views.K)
figure = pose.plot()
