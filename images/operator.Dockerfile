# The operator's image: `agentrun operator`.
#   docker build -f images/operator.Dockerfile -t agentrun-operator:dev .
ARG BASE=python:3.13-slim

# What changes seldom: a layer of its own, which is fetched once.
FROM ${BASE} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/operator.txt /requirements/
RUN python3 -m venv --without-pip /opt/agentrun \
 && python3 -m pip --python /opt/agentrun/bin/python install --quiet --no-compile --only-binary :all: \
      --require-hashes -r /requirements/operator.txt \
 && /opt/agentrun/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/agentrun/lib

# Our own code, made into a wheel without the network; the operator has no use for the api.
FROM packages AS code
COPY requirements/build.txt /requirements/
RUN python3 -m venv /build && /build/bin/pip install --quiet --require-hashes -r /requirements/build.txt
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY runner runner
COPY operator operator
COPY api api
RUN /build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel . \
 && python3 -m pip --python /opt/agentrun/bin/python install --quiet --no-compile --no-deps --no-index \
      --root /code --prefix /opt/agentrun /wheel/*.whl \
 && cd /code/opt/agentrun/lib/python3*/site-packages \
 && rm -rf agentrun_api \
 && /opt/agentrun/bin/python -m compileall -q -s /code --invalidation-mode unchecked-hash .

FROM ${BASE}
COPY --from=packages /opt/agentrun /opt/agentrun
COPY --from=code /code/ /
# Any user may run it, also one without a name, with a root file system that cannot be written.
ENV PATH=/opt/agentrun/bin:/usr/local/bin:/usr/bin:/bin \
    USER=agentrun HOME=/dev/shm TMPDIR=/dev/shm PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/opt/agentrun/bin/agentrun"]
CMD ["operator"]
