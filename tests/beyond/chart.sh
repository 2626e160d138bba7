#!/usr/bin/env bash
# Checks that the Helm chart is one: linted and rendered by Helm's own library, each manifest validated against Kubernetes' schemas, also
# the examples', and the settings in it read by `baton serve`.
#
#     tests/beyond/chart.sh [FOLDER]        with the build in this folder (target/release)
#
# Installs Helm's library and the schemas into a folder of its own. Half a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q helm-python-sdk kubernetes-validate

cat >"$work/render.py" <<'END'
import pathlib
import sys

from helm_python import Chart, lint

chart, out = map(pathlib.Path, sys.argv[1:])
variants = {
    "usual": {},
    "other": {"handOver": "nodes", "runtimeClassName": "", "metrics": {"secret": "baton-metrics"},
              "resources": {"limits": {"memory": "40Gi"}}, "settings": {"arena": "60GiB"}},
}
for name, values in variants.items():
    report = lint(chart, values, strict=True)
    print(f"{name}: linted", [message for message in report["messages"] if message["severity"] > 1] or "well")
    assert not report["errors"] and all(message["severity"] < 2 for message in report["messages"]), report
    for path, text in Chart.load(chart).render(values, name="baton", namespace="gpu").items():
        if text.strip():
            (out / f"{name}-{pathlib.Path(path).name}").write_text(text)
END
mkdir "$work/rendered"
"$work/venv/bin/python" "$work/render.py" packaging/helm "$work/rendered"
for version in 1.28 1.37; do
    "$work/venv/bin/kubernetes-validate" --strict -k "$version" "$work"/rendered/*.yaml examples/kubernetes/{two-deployments,try}.yaml
done
# Baton and bash can read the files in the chart's ConfigMap.
"$work/venv/bin/python" - "$work/rendered/usual-daemonset.yaml" "$work" <<'END'
import pathlib
import sys

import yaml

manifest, out = map(pathlib.Path, sys.argv[1:])
for name, text in next(yaml.safe_load_all(manifest.read_text()))["data"].items():
    (out / name).write_text(text)
END
bash -n "$work/serve.sh"
"$built/baton" serve --config "$work/serve.toml" --print-config | grep -E '^(arena|host-pool|allow-uid)'
echo "== all is well"
