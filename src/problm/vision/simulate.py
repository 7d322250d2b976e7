"""Two views with known truth, under the name that the README has always used."""

from .two_view.simulate import two_views

__all__ = ["two_views"]
