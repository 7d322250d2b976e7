"""Two views with known truth, under their public name."""

from .two_view.simulate import two_views

__all__ = ["two_views"]
