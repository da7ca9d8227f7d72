"""`helm upgrade --install` and `helm uninstall` where no helm is installed: Helm's own code as a library.

Called by .ci/cluster: helm.py upgrade NAME NAMESPACE CHART VALUES.yaml KEY=VALUE…
                       helm.py uninstall NAME NAMESPACE
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


def upgrade(
    config: helm_python.Config, name: str, namespace: str, chart: str, values_file: str, *settings: str
) -> None:
    """Installs the release, or brings it up to date."""
    values = yaml.safe_load(Path(values_file).read_text()) or {}
    for setting in settings:
        values = merged(values, helm_python.parse_set_string(setting))
    with helm_python.Chart.load(Path(chart)) as loaded:
        try:
            config.upgrade(loaded, name, values, namespace=namespace, timeout=SECONDS_MAX)
        except helm_python.HelmError as error:
            if "has no deployed releases" not in str(error) and "not found" not in str(error):
                raise
            config.install(
                loaded, name, values, namespace=namespace, create_namespace=True, timeout=SECONDS_MAX
            )


def uninstall(config: helm_python.Config, name: str) -> None:
    """Deletes the release, and whatever of it is not to be kept, if it is there."""
    config.uninstall(name, ignore_not_found=True, wait="watcher", timeout=SECONDS_MAX)


def main(command: str, name: str, namespace: str, *arguments: str) -> None:
    """See the module's docstring."""
    with helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=namespace) as config:
        if command == "uninstall":
            uninstall(config, name)
        else:
            chart, values_file, *settings = arguments
            upgrade(config, name, namespace, chart, values_file, *settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
