# The example's consumer outside Lambda. docs/containers.md says how it works and how to run it.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/uv.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/uv.txt
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src/idempotent_receiver src/idempotent_receiver
ENV UV_PROJECT_ENVIRONMENT=/opt/receiver UV_PYTHON_DOWNLOADS=never
RUN uv sync --locked --no-dev --extra cli --no-editable --compile-bytecode

FROM python:3.13-slim
COPY --from=build /opt/receiver /opt/receiver
COPY src/app /opt/consumer/app
# The current folder is where `receiver work` looks for the handler.
WORKDIR /opt/consumer
ENV PATH="/opt/receiver/bin:$PATH" PYTHONUNBUFFERED=1
# Declared, so that it stays writable for this user where the rest of the file system is read-only.
VOLUME ["/tmp"]
USER 10001:10001
ENTRYPOINT ["receiver", "work"]
