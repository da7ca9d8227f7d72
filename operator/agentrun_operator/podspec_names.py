"""Names that runner pods bear: labels, annotations, containers, volumes, folders.

Used by the pod builder, and by the operator to find and to read its pods.
"""

from __future__ import annotations

RUNNER_CONTAINER = "runner"
"""The container whose end is the attempt's end, whatever else runs beside it."""

LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_RUN = "agentrun.dev/run"
LABEL_RUN_ID = "agentrun.dev/run-id"
LABEL_ATTEMPT = "agentrun.dev/attempt"
RUNNER_NAME = "agentrun-runner"
MANAGED_BY = "agentrun"
POD_SELECTOR = f"{LABEL_NAME}={RUNNER_NAME},{LABEL_MANAGED_BY}={MANAGED_BY}"

IMAGE_ANNOTATION = "agentrun.dev/image"
"""The image that the operator asked for; what runs may be a mirror's."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"

CONFIG_DIR = "/etc/agentrun/config"
CONFIG_VOLUME = "agentrun-config"
RESERVED_VOLUME_PREFIX = "agentrun-"
SCRATCH_DIR = "/dev/shm"
"""In memory, and there in every container: an emptyDir would keep a node from scaling in."""
