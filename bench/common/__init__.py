"""Shared by the bench scripts: running programs, describing the machine, statistics, tables."""
