# Two images without a shell, for users that are not root: quota-admin with loadgen, and
# quotad.
#
#   docker build -t quotient .
#   docker build -t quotad --target quotad .
#   docker run --rm quotient --help
#   docker run --rm --entrypoint loadgen quotient --duration 5s
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git, so that the programs know their version.
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/...
RUN mkdir -p /empty

FROM gcr.io/distroless/static-debian12:nonroot@sha256:b7bb25d9f7c31d2bdd1982feb4dafcaf137703c7075dbe2febb41c24212b946f AS quotad
COPY --from=build /out/quotad /usr/local/bin/
# A volume that is made here gets the directory's owner.
COPY --from=build --chown=65532:65532 /empty /run/quotad
ENTRYPOINT ["quotad"]

FROM gcr.io/distroless/static-debian12:nonroot@sha256:b7bb25d9f7c31d2bdd1982feb4dafcaf137703c7075dbe2febb41c24212b946f
COPY --from=build /out/quota-admin /out/loadgen /usr/local/bin/
ENTRYPOINT ["quota-admin"]
