"""The ledger of `baton status`: what of the GPU's memory belongs to whom."""


def hidden(row):
    """Which part of what the driver says is used no line has, at the worst of a row's moments.

    None if the row has none.
    """
    ledgers = row.get("ledgers", [])
    used = [(each["driver_used_bytes"], each["known_bytes"]) for each in ledgers]
    return max((abs(all - known) / all for all, known in used if all), default=None)
