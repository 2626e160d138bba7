"""The ledger of `baton status`: the owners of the GPU's memory."""


def hidden(row):
    """Which part of what the driver says is used no line has, at the worst of a row's moments.

    Only moments at which programs have memory count: before, there is nothing but contexts in the
    making. None if the row has none.
    """
    ledgers = [each for each in row.get("ledgers", []) if each["lines"]["lent_bytes"]]
    used = [(each["driver_used_bytes"], each["known_bytes"]) for each in ledgers]
    return max((abs(all - known) / all for all, known in used if all), default=None)
