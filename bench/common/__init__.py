"""What the bench scripts share: running programs, describing the machine, statistics, tables."""
