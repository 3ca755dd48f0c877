# Two images without a shell, for users that are not root: quota-admin with loadgen, and
# quotad.
#
#   docker build -t quotient .
#   docker build -t quotad --target quotad .
#   docker run --rm quotient --help
#   docker run --rm --entrypoint loadgen quotient --duration 5s
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git, so that the programs know their version.
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/...
RUN mkdir -p /empty

FROM gcr.io/distroless/static-debian12:nonroot AS quotad
COPY --from=build /out/quotad /usr/local/bin/
# A volume that is made here gets the directory's owner.
COPY --from=build --chown=65532:65532 /empty /run/quotad
ENTRYPOINT ["quotad"]

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/quota-admin /out/loadgen /usr/local/bin/
ENTRYPOINT ["quota-admin"]
