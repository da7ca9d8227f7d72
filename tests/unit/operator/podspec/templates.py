"""Pod templates: parts of pods as people write them, and parts that are refused.

The tests build pods from them, and hold those to Kubernetes' own schemas and to the
restricted Pod Security standard.
"""

from __future__ import annotations

from typing import Any

from agentrun.spec import AgentRun, parse_object

Spec = dict[str, Any]


def run_with(template: dict[str, Any] | None = None, **spec: Any) -> AgentRun:
    """An object with that pod template, as the API server gives it."""
    body: dict[str, Any] = {
        "prompt": "Hello",
        "agent": {
            "model": {
                "name": "openai:gpt-5",
                "apiKeyFrom": {"secretKeyRef": {"name": "keys", "key": "openai"}},
            }
        },
    }
    if template is not None:
        body["podTemplate"] = template
    return parse_object(
        {
            "apiVersion": "agentrun.dev/v1alpha1",
            "kind": "AgentRun",
            "metadata": {"name": "hello", "namespace": "demo", "uid": "ignored"},
            "spec": body | spec,
        }
    )


ACCEPTED: dict[str, Spec] = {
    "nothing": {},
    "nulls": {"nodeSelector": None, "containers": None, "securityContext": {"runAsUser": None}},
    "placement": {
        "nodeSelector": {"kubernetes.io/arch": "amd64", "cloud.google.com/gke-spot": "true"},
        "tolerations": [
            {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 20,
            },
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
                            ]
                        }
                    ]
                }
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "agentrun-runner"}},
            }
        ],
        "schedulerName": "default-scheduler",
        "schedulingGates": [{"name": "example.test/quota"}],
    },
    "both names of the account": {"serviceAccountName": "default", "serviceAccount": "default"},
    "the old name of the account": {"serviceAccount": "default"},
    "what we set anyway": {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "hostNetwork": False,
        "enableServiceLinks": False,
    },
    "a random user, as OpenShift gives": {
        "securityContext": {"runAsUser": 1000680000, "fsGroup": 1000680000}
    },
    "a private registry": {"imagePullSecrets": [{"name": "registry"}]},
    "names of hosts": {
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["tools.test"]}],
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    },
    "the runner's own container": {
        "volumes": [
            {"name": "ca", "configMap": {"name": "ca-bundle", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
        ],
        "containers": [
            {
                "name": "runner",
                "image": "registry.test/team/runner:1.4",
                "imagePullPolicy": "Always",
                "env": [
                    {"name": "HTTPS_PROXY", "value": "http://proxy.test:3128"},
                    {"name": "SSL_CERT_FILE", "value": "/certs/ca.crt"},
                    {"name": "REGION", "valueFrom": {"configMapKeyRef": {"name": "site", "key": "region"}}},
                ],
                "envFrom": [{"secretRef": {"name": "team-settings", "optional": True}}],
                "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
                "volumeMounts": [
                    {"name": "ca", "mountPath": "/certs/ca.crt", "subPath": "ca.crt", "readOnly": True}
                ],
                "securityContext": {"runAsUser": 65532, "readOnlyRootFilesystem": True},
            }
        ],
    },
    "an init container that fetches a repository": {
        "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Gi"}}],
        "initContainers": [
            {
                "name": "clone",
                "image": "alpine/git:2",
                "args": ["clone", "--depth=1", "https://git.test/team/repo", "/work/repo"],
                "env": [{"name": "HOME", "value": "/work"}],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                "securityContext": {"runAsUser": 1000},
            }
        ],
        "containers": [
            {"name": "runner", "volumeMounts": [{"name": "work", "mountPath": "/work", "subPath": "repo"}]}
        ],
    },
    "a native sidecar": {
        "initContainers": [
            {
                "name": "proxy",
                "image": "registry.test/sql-proxy:2",
                "restartPolicy": "Always",
                "args": ["--port=5432"],
                "ports": [{"containerPort": 5432}],
                "startupProbe": {"tcpSocket": {"port": 5432}},
                "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
            }
        ]
    },
    "a classic sidecar": {
        "volumes": [{"name": "logs", "emptyDir": {}}],
        "containers": [
            {
                "name": "shipper",
                "image": "fluent/fluent-bit:4",
                "command": ["/fluent-bit/bin/fluent-bit"],
                "resources": {"limits": {"memory": "64Mi"}},
                "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
            },
            {"name": "runner", "volumeMounts": [{"name": "logs", "mountPath": "/var/log/agent"}]},
        ],
    },
    "an identity for a cloud": {
        "serviceAccountName": "default",
        "volumes": [
            {
                "name": "identity",
                "projected": {
                    "sources": [
                        {
                            "serviceAccountToken": {
                                "audience": "sts.test",
                                "path": "token",
                                "expirationSeconds": 3600,
                            }
                        }
                    ]
                },
            }
        ],
        "containers": [
            {"name": "runner", "volumeMounts": [{"name": "identity", "mountPath": "/var/run/identity"}]}
        ],
    },
    "kinds of volumes": {
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "b", "secret": {"secretName": "certs", "optional": True}},
            {
                "name": "c",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
            {"name": "d", "csi": {"driver": "secrets.test", "readOnly": True}},
        ]
    },
}

_PODS_ARE_RESTRICTED = "runner pods are restricted"


def _runner(**fields: Any) -> Spec:
    return {"containers": [{"name": "runner", **fields}]}


def _sidecar(**fields: Any) -> Spec:
    return {"containers": [{"name": "side", "image": "side:1", **fields}]}


REFUSED: dict[str, tuple[Spec, str, str]] = {
    # what: the template's spec, the path below spec.podTemplate.spec, a part of the reason
    "host network": ({"hostNetwork": True}, "hostNetwork", "shares nothing with its node"),
    "host processes": ({"hostPID": True}, "hostPID", "shares nothing with its node"),
    "host IPC": ({"hostIPC": True}, "hostIPC", "shares nothing with its node"),
    "a false that is a number": ({"hostNetwork": 0}, "hostNetwork", "shares nothing"),
    "restarts": ({"restartPolicy": "OnFailure"}, "restartPolicy", "is always Never"),
    "a token": ({"automountServiceAccountToken": True}, "automountServiceAccountToken", "is always false"),
    "a deadline of the pod's": (
        {"activeDeadlineSeconds": 60},
        "activeDeadlineSeconds",
        "set spec.completionDeadlineSeconds",
    ),
    "a grace of the pod's": (
        {"terminationGracePeriodSeconds": 60},
        "terminationGracePeriodSeconds",
        "set spec.terminationGracePeriodSeconds",
    ),
    "a node's name": ({"nodeName": "n1"}, "nodeName", "use nodeSelector or affinity"),
    "one process namespace": ({"shareProcessNamespace": True}, "shareProcessNamespace", "secrets"),
    "a slip of the pen": ({"nodeSelektor": {}}, "nodeSelektor", "did you mean 'nodeSelector'?"),
    "a field of tomorrow": ({"resourceClaims": []}, "resourceClaims", "a template may have: nodeSelector"),
    "another type": ({"nodeSelector": ["a"]}, "nodeSelector", "must be a mapping, not a list"),
    "two accounts": (
        {"serviceAccountName": "a", "serviceAccount": "b"},
        "serviceAccount",
        "must be the same as serviceAccountName ('a'), not 'b'",
    ),
    "waiting for a lost node": (
        {"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]},
        "tolerations[0].tolerationSeconds",
        "no run waits for a lost node",
    ),
    "a toleration that is none": ({"tolerations": ["all"]}, "tolerations[0]", "must be a mapping"),
    "root": ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser", "not root"),
    "maybe root": (
        {"securityContext": {"runAsNonRoot": False}},
        "securityContext.runAsNonRoot",
        "is always true",
    ),
    "no seccomp": (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "securityContext.seccompProfile.type",
        _PODS_ARE_RESTRICTED,
    ),
    "sysctls": (
        {"securityContext": {"sysctls": []}},
        "securityContext.sysctls",
        "known are: appArmorProfile",
    ),
    "a folder of the node": (
        {"volumes": [{"name": "docker", "hostPath": {"path": "/var/run/docker.sock"}}]},
        "volumes[0].hostPath",
        "a runner's volumes may be configMap",
    ),
    "nfs": (
        {"volumes": [{"name": "n", "nfs": {"server": "s", "path": "/"}}]},
        "volumes[0].nfs",
        "is not allowed",
    ),
    "our volume": (
        {"volumes": [{"name": "agentrun-config", "emptyDir": {}}]},
        "volumes[0].name",
        "the operator's",
    ),
    "two volumes of one name": (
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
        "volumes[1].name",
        "another volume already",
    ),
    "a volume without a name": ({"volumes": [{"emptyDir": {}}]}, "volumes[0]", "a mapping with a name"),
    "a token for the Kubernetes API": (
        {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]},
        "volumes[0].projected.sources[0].serviceAccountToken.audience",
        "is required",
    ),
    "another command": (
        _runner(command=["sh"]),
        "containers[0].command",
        "the image's entry point is the runner",
    ),
    "arguments": (_runner(args=["--debug"]), "containers[0].args", "from the environment"),
    "a hook": (_runner(lifecycle={"preStop": {}}), "containers[0].lifecycle", "eat the time"),
    "a probe": (_runner(livenessProbe={}), "containers[0].livenessProbe", "found by its log"),
    "a working folder": (
        _runner(workingDir="/x"),
        "containers[0].workingDir",
        "the runner's container may have: env",
    ),
    "a writable root": (
        _runner(securityContext={"readOnlyRootFilesystem": False}),
        "containers[0].securityContext.readOnlyRootFilesystem",
        "write to /dev/shm",
    ),
    "our variable": (
        _runner(env=[{"name": "AGENTRUN_RUN_ID", "value": "x"}]),
        "containers[0].env[0].name",
        "the operator sets those",
    ),
    "a variable twice": (
        _runner(env=[{"name": "A"}, {"name": "A"}]),
        "containers[0].env[1].name",
        "set twice",
    ),
    "devices": (
        _runner(resources={"claims": []}),
        "containers[0].resources.claims",
        "known are: requests, limits",
    ),
    "over our settings": (
        _runner(volumeMounts=[{"name": "a", "mountPath": "/etc/agentrun/config/x"}]),
        "containers[0].volumeMounts[0].mountPath",
        "must not cover",
    ),
    "above our settings": (
        _runner(volumeMounts=[{"name": "a", "mountPath": "/etc/"}]),
        "containers[0].volumeMounts[0].mountPath",
        "must not cover",
    ),
    "over everything": (
        _runner(volumeMounts=[{"name": "a", "mountPath": "/"}]),
        "containers[0].volumeMounts[0].mountPath",
        "must not cover",
    ),
    "a way round": (
        _runner(volumeMounts=[{"name": "a", "mountPath": "/x/../etc/agentrun"}]),
        "containers[0].volumeMounts[0].mountPath",
        "without '..'",
    ),
    "privileged": (
        _runner(securityContext={"privileged": True}),
        "containers[0].securityContext.privileged",
        _PODS_ARE_RESTRICTED,
    ),
    "a privileged sidecar": (
        _sidecar(securityContext={"privileged": True}),
        "containers[0].securityContext.privileged",
        _PODS_ARE_RESTRICTED,
    ),
    "a sidecar that gains privileges": (
        _sidecar(securityContext={"allowPrivilegeEscalation": True}),
        "containers[0].securityContext.allowPrivilegeEscalation",
        _PODS_ARE_RESTRICTED,
    ),
    "capabilities": (
        _sidecar(securityContext={"capabilities": {"add": ["NET_ADMIN"]}}),
        "containers[0].securityContext.capabilities.add",
        "NET_BIND_SERVICE only",
    ),
    "capabilities kept": (
        _sidecar(securityContext={"capabilities": {"drop": ["NET_RAW"]}}),
        "containers[0].securityContext.capabilities.drop",
        "must hold ALL",
    ),
    "a port of the node": (
        _sidecar(ports=[{"containerPort": 80, "hostPort": 80}]),
        "containers[0].ports[0].hostPort",
        "shares nothing with its node",
    ),
    "mounts that reach the node": (
        _sidecar(volumeMounts=[{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
        "containers[0].volumeMounts[0].mountPropagation",
        "privileged",
    ),
    "a sidecar that restarts by itself": (
        _sidecar(restartPolicy="Always"),
        "containers[0].restartPolicy",
        "is allowed for init containers only",
    ),
    "two containers of one name": (
        {"containers": [{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]},
        "containers[1].name",
        "another container already",
    ),
    "an init container named runner": (
        {"initContainers": [{"name": "runner", "image": "a"}]},
        "initContainers[0].name",
        "another container already",
    ),
    "a container without a name": (
        {"containers": [{"image": "a"}]},
        "containers[0]",
        "a mapping with a name",
    ),
    "nonsense in a container": (_runner(env="A=B"), "containers[0].env", "must be a list, not 'A=B'"),
}
