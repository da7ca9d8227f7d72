"""The dashboard asks for figures that the operator gives, and monitors scrape where they are."""

from __future__ import annotations

import json
import re

from agentrun_operator.metrics import Metrics
from tests.unit.chart.rendering import CHART, of_kind, render, the, values_of

FULL = values_of(CHART / "ci" / "full.yaml")


def test_every_figure_on_the_dashboard_is_one_of_the_operators() -> None:
    text = (CHART / "files" / "dashboard.json").read_text()
    asked = {
        re.sub("_bucket$", "", name)
        for panel in json.loads(text)["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bagentrun_\w+", target["expr"])
    }
    given = set()
    for family in Metrics().registry.collect():
        given.add(f"{family.name}_total" if family.type == "counter" else family.name)
    assert asked - given == set()
    assert given - asked == {"agentrun_operator_reconciles_total", "agentrun_operator_sweeps_total"}


def test_the_dashboard_is_a_config_map_that_grafana_finds() -> None:
    found = the(render(FULL), "ConfigMap", "demo-agentrun-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads(found["data"]["agentrun.json"])
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert all(panel["title"] and panel["description"] for panel in dashboard["panels"])


def test_monitors_find_the_operators_port() -> None:
    objects = render(FULL)
    (deployment,) = of_kind(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    (pods,) = of_kind(objects, "PodMonitor")
    assert pods["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pods["spec"]["podMetricsEndpoints"][0]["port"] in ports
    assert pods["metadata"]["labels"]["release"] == "prometheus"
    (services,) = of_kind(objects, "ServiceMonitor")
    service = the(objects, "Service", "demo-agentrun-metrics")
    assert services["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] in ports
