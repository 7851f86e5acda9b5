# docker build -t tenfold .                               CPU
# docker build -t tenfold --build-arg TORCH=cu130 .       a GPU: the name of PyTorch's index that fits its driver
# docker run --rm -v "$PWD/runs:/work/runs" tenfold train cartpole          (with a GPU: --gpus all … --device cuda)
FROM python:3.11-slim
ARG TORCH=cpu
# torch.compile and Triton call a C compiler
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/${TORCH}
COPY pyproject.toml README.md LICENSE MANIFEST.in constraints.txt /src/
COPY tenfold /src/tenfold
RUN grep -v '^torch==' /src/constraints.txt > /tmp/pins && pip install --no-cache-dir -c /tmp/pins /src && rm -rf /src
WORKDIR /work
ENTRYPOINT ["tenfold"]
