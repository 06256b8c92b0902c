# For the evaluation of simfl as an artefact: the build runs README's two commands, so that an image which was
# built is one in which every test passed. `docker build -t simfl .`, then `docker run -it simfl`.
FROM python:3.11-slim-bookworm

# Chromium opens report.html in tests; kernel links of `simfl live` need iproute2 and --cap-add NET_ADMIN.
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential chromium git iproute2 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /simfl
COPY . .

RUN make run
RUN make test

ENV PATH="/simfl/.venv/bin:$PATH"
CMD ["bash"]
