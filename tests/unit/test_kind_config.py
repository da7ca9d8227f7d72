"""`kind-config.yaml` is what `kind create cluster --config` takes."""

from __future__ import annotations

from pathlib import Path

import yaml

FILE = Path(__file__).resolve().parents[2] / "kind-config.yaml"


def test_it_describes_a_cluster_of_a_control_plane_and_a_worker() -> None:
    config = yaml.safe_load(FILE.read_text())
    assert set(config) == {"kind", "apiVersion", "name", "nodes"}
    assert config["kind"] == "Cluster"
    assert config["apiVersion"] == "kind.x-k8s.io/v1alpha4"
    assert config["name"] == "agentrun"
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker"]
