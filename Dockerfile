# quota-admin and loadgen in one image, without a shell:
#
#   docker build -t quotient .
#   docker run --rm quotient --help
#   docker run --rm --entrypoint loadgen quotient --duration 5s
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git, so that the programs know their version.
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/quota-admin ./cmd/loadgen

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ /usr/local/bin/
ENTRYPOINT ["quota-admin"]
