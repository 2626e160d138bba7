"""The answers of LLM servers that share a GPU, as rows of a table. Pure."""

import collections
import statistics

from common import stats

HEADER = ["server", "first token", "n", "P50 ms", "P99 ms", "limit ms", "of limit"]
HEADER += ["per token ms", "GB in", "GB out", "tokens"]
BESIDE_HEADER = ["server", "of the GPU", "beside", "n", "P50 ms", "P99 ms", "P99 of alone"]
BESIDE_HEADER += ["per token ms", "of alone", "training", "GB in", "GB out", "tokens"]
KINDS = {"resident": "resident", "switch": "after a switch"}


def names_of(models):
    """A name for each server: of two of one model the second is `7b-2`."""
    seen = collections.Counter()
    for model in models:
        seen[model] += 1
        yield (model if seen[model] == 1 else f"{model}-{seen[model]}"), model


def figures(answers, key="first_ms"):
    """Count, median and 99th percentile of a time."""
    values = [answer[key] for answer in answers]
    return len(values), statistics.median(values), stats.quantile(values, 0.99)


def asked_of(result):
    """(name, model, what was asked of it under Baton, what its model answered alone) of each server."""
    for name, model in names_of(result["models"]):
        asked = result.get("baton", {}).get("servers", {}).get(name, [])
        yield name, model, asked, result.get("alone", {}).get(model, {}).get("answers", [])


def judge(result):
    """Puts whether they are equal, and how many there are, where the tokens themselves were."""
    for one in result.get("beside", []):
        alone = result.get("alone", {}).get(result["models"][0], {}).get("answers", [])
        for at, answer in enumerate(one["answers"]):
            tokens = answer.pop("tokens")
            if alone:
                answer["equal"] = tokens == alone[at % len(alone)]["tokens"]
    for _, _, asked, alone in asked_of(result):
        for one, bare in zip(asked, alone):
            for kind in KINDS:
                one[kind]["equal"] = one[kind]["tokens"] == bare["tokens"]
        for one in asked:
            for kind in KINDS:
                del one[kind]["tokens"]
    for one in result.get("alone", {}).values():
        tokens = [answer.pop("tokens") for answer in one["answers"]]
        one["distinct_tokens"] = len({token for answer in tokens for token in answer})


def differs(result):
    """True if any server under Baton gave other tokens than bare; false where bare was not run."""
    beside = [answer for one in result.get("beside", []) for answer in one["answers"]]
    return any(answer.get("equal") is False for answer in beside) or any(
        one[kind].get("equal") is False
        for _, _, asked, _ in asked_of(result)
        for one in asked
        for kind in KINDS
    )


def rows(result):
    """For each server alone, resident under Baton, and after a switch."""
    found = []
    for model, one in result.get("alone", {}).items():
        n, p50, p99 = figures(one["answers"])
        per_token = figures(one["answers"], "per_token_ms")[1]
        row = [model, "bare, alone", n, f"{p50:.1f}", f"{p99:.1f}", "", "", f"{per_token:.2f}"]
        found.append([*row, "", "", f"{one['distinct_tokens']} distinct"])
    for name, model, asked, alone in asked_of(result):
        if not asked:
            continue
        bus = 1e-6 * result["weights"][model] / result["bus_gbps"]
        limit = figures(alone)[1] + bus if alone else None
        for kind, title in KINDS.items():
            answers = [one[kind] for one in asked]
            n, p50, p99 = figures(answers)
            limits, gigabytes = ["", ""], ["", ""]
            if kind == "switch":
                moved = [one["moved"] for one in asked if one["moved"]]
                middle = [[one[way] / 1e9 for one in moved] for way in ("bytes_in", "bytes_out")]
                gigabytes = [f"{statistics.median(values):.2f}" if values else "" for values in middle]
                limits = [f"{limit:.0f}", f"{p50 / limit:.2f}"] if limit else limits
            equal = sum(answer.get("equal", False) for answer in answers)
            said = f"{equal} of {n} equal" if alone else ""
            per_token = f"{figures(answers, 'per_token_ms')[1]:.2f}"
            found.append([name, title, n, f"{p50:.1f}", f"{p99:.1f}", *limits, per_token, *gigabytes, said])
    return found


def beside_rows(result):
    """For each share of the GPU: the first server beside a training, against the same server bare and alone."""
    model = result["models"][0]
    alone = result.get("alone", {}).get(model, {}).get("answers", [])
    found = []
    for one in result.get("beside", []):
        n, p50, p99 = figures(one["answers"])
        per_token = figures(one["answers"], "per_token_ms")[1]
        times, ratios = [f"{p50:.1f}", f"{p99:.1f}", f"{per_token:.2f}"], ["", ""]
        if alone:
            ratios = [f"{p99 / figures(alone)[2]:.2f}", f"{per_token / figures(alone, 'per_token_ms')[1]:.2f}"]
        steps = one["steps_per_second"]
        kept = f"{steps['beside'] / steps['alone']:.2f}" if steps["alone"] else ""
        moved = one["moved"] or {}
        gigabytes = [f"{moved[way] / 1e9:.1f}" if way in moved else "" for way in ("bytes_in", "bytes_out")]
        equal = sum(answer.get("equal", False) for answer in one["answers"])
        said = f"{equal} of {n} equal" if alone else ""
        row = [model, f"{one['share']:g}", one["trained"].removeprefix("corun_"), n, *times[:2], ratios[0], times[2]]
        found.append([*row, ratios[1], kept, *gigabytes, said])
    return found
