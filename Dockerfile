# The server in a container: docker build -t omnigraph .          (--target spark for the image with Spark and Java)
# Not root, nothing to write outside /data and /tmp, dependencies by hash. See docs/deployment.md.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/omnigraph && python -m venv /opt/build
COPY requirements/server.lock requirements/
RUN /opt/omnigraph/bin/pip install --require-hashes --only-binary :all: --requirement requirements/server.lock
# What builds wheels is locked as well, and stays behind in this stage.
COPY requirements/build.lock requirements/
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: --requirement requirements/build.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src/ src/
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/omnigraph/bin/pip install --no-index --no-deps /wheels/*.whl

FROM build AS build-spark
COPY requirements/spark.lock requirements/
RUN /opt/build/bin/pip wheel --require-hashes --only-binary :all: --no-binary pyspark --no-deps --no-build-isolation \
    --wheel-dir /wheels-spark --requirement requirements/spark.lock \
 && /opt/omnigraph/bin/pip install --no-index --no-deps /wheels-spark/*.whl

FROM python:${PYTHON}-slim-bookworm AS base
RUN groupadd --gid 10001 omnigraph \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin omnigraph \
 && install --directory --owner 10001 --group 10001 --mode 0750 /data
ENV PATH=/opt/omnigraph/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp OMNIGRAPH_HOME=/tmp/omnigraph
WORKDIR /data
USER 10001:10001

FROM base AS spark
USER root
# A whole runtime: Spark's own launcher asks for a module that slim ones, such as the extra `java`, do not have.
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/omnigraph /opt/omnigraph
USER 10001:10001
ENTRYPOINT ["omnigraph"]
CMD ["--help"]

FROM base AS server
COPY --from=build /opt/omnigraph /opt/omnigraph
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["omnigraph"]
CMD ["serve", "--store", "/data/graph.omni", "--bind", "0.0.0.0:8080"]
