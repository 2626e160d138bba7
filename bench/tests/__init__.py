"""Tests of the bench scripts themselves; none needs a GPU or a package from elsewhere."""
