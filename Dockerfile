# The packages are installed in the first stage; the second holds Python and what was installed, and no installer.
#
#   docker build -t bucketwise .
#   docker run -d -e MONGODB_URI -v ./bucketwise.toml:/etc/bucketwise/bucketwise.toml:ro bucketwise

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
# The environment gets no pip of its own: that of this stage installs into it, exactly what the lock file names.
COPY requirements.lock ./
RUN python -m venv --without-pip /opt/bucketwise \
    && pip --python /opt/bucketwise/bin/python install --no-cache-dir --disable-pip-version-check \
        --no-deps --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY docs/policies.md docs/policies-reading.md docs/policies-keeping.md ./docs/
COPY config ./config
COPY buckets ./buckets
COPY rollups ./rollups
COPY archivers ./archivers
COPY jobs ./jobs
COPY bucketwise ./bucketwise
RUN pip --python /opt/bucketwise/bin/python install --no-cache-dir --disable-pip-version-check --no-deps . \
    && pip --python /opt/bucketwise/bin/python check

FROM python:3.11-slim-bookworm
RUN pip uninstall --yes --disable-pip-version-check setuptools wheel pip \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin bucketwise
COPY --from=build /opt/bucketwise /opt/bucketwise
ENV PATH=/opt/bucketwise/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BUCKETWISE_CONFIG=/etc/bucketwise/bucketwise.toml \
    BUCKETWISE_METRICS_PORT=9464 \
    BUCKETWISE_METRICS_HOST=0.0.0.0
WORKDIR /etc/bucketwise
USER 10001:10001
EXPOSE 9464
# Of `schedule`, which answers there while its scheduler is awake.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['BUCKETWISE_METRICS_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["bucketwise"]
CMD ["schedule"]
