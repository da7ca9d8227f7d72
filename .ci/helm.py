"""`helm upgrade --install` where no helm is installed: Helm's own code as a library.

Called by .ci/cluster: helm.py NAME CHART NAMESPACE VALUES.yaml KEY=VALUE…
The cluster is that of KUBECONFIG.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

SECONDS_MAX = 120


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, and `above` where they differ."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def main(name: str, chart: str, namespace: str, values_file: str, *settings: str) -> None:
    """Installs the release, or brings it up to date."""
    values = yaml.safe_load(Path(values_file).read_text()) or {}
    for setting in settings:
        values = merged(values, helm_python.parse_set_string(setting))
    config = helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=namespace)
    with config, helm_python.Chart.load(Path(chart)) as loaded:
        try:
            config.upgrade(loaded, name, values, namespace=namespace, timeout=SECONDS_MAX)
        except helm_python.HelmError as error:
            if "has no deployed releases" not in str(error) and "not found" not in str(error):
                raise
            config.install(
                loaded, name, values, namespace=namespace, create_namespace=True, timeout=SECONDS_MAX
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
