#!/usr/bin/env bash
# A real Apache Kafka on this machine: one node that is broker and controller
# (KRaft), on loopback, with its data in a folder.
#
#   kafka.sh check               says what is missing here, if anything
#   kafka.sh fetch JARS          downloads the jars that jars.sha256 lists into the
#                                folder JARS, and verifies them
#   kafka.sh run JARS DATA PORT CONTROLLER_PORT
#                                is the broker, until SIGTERM; its log is in DATA
#
# Needs Java 17 or later, and Maven Central or a mirror of it (MAVEN_CENTRAL) for
# the first fetch. jars.sha256 is what `mvn dependency:copy-dependencies` finds
# for org.apache.kafka:kafka_2.13, with log4j-slf4j-impl for the log.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
central=${MAVEN_CENTRAL:-https://repo.maven.apache.org/maven2}

check() {
    local missing=0 version
    if ! version=$(java -version 2>&1); then
        echo "java is missing: install Java 17 or later (Debian: apt-get install default-jre-headless)"
        return 1
    fi
    version=$(sed -n 's/.*version "\([0-9]*\).*/\1/p' <<<"$version" | head -1)
    if [[ ${version:-0} -lt 17 ]]; then
        echo "java is version ${version:-unknown}: Kafka needs 17 or later"
        missing=1
    fi
    for tool in curl sha256sum; do
        command -v "$tool" >/dev/null || { echo "$tool is missing"; missing=1; }
    done
    return "$missing"
}

# What is there and right is not fetched again.
fetch() {
    local jars=$1 sum path file
    mkdir -p "$jars"
    while read -r sum path; do
        file=$jars/$(basename "$path")
        if ! sha256sum --check --status <<<"$sum  $file" 2>/dev/null; then
            curl --fail --silent --show-error --location --retry 3 --max-time 120 --output "$file.part" "$central/$path"
            sha256sum --check --quiet <<<"$sum  $file.part"
            mv "$file.part" "$file"
        fi
    done <"$here/jars.sha256"
}

properties() {
    local data=$1 port=$2 controller=$3
    cat <<END
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=127.0.0.1:$controller
log.dirs=$data/log
# One node holds everything.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
default.replication.factor=1
auto.create.topics.enable=false
# A rebalance need not wait for members that start later.
group.initial.rebalance.delay.ms=0
END
}

run() {
    local jars=$1 data=$2 id
    mkdir -p "$data"
    properties "$data" "$3" "$4" >"$data/server.properties"
    if [[ ! -f $data/log/meta.properties ]]; then
        id=$(java -cp "$jars/*" kafka.tools.StorageTool random-uuid 2>>"$data/server.log")
        java -cp "$jars/*" kafka.tools.StorageTool format --standalone -t "$id" -c "$data/server.properties" >>"$data/server.log" 2>&1
    fi
    exec java -Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" \
        -Dlog4j2.level=WARN kafka.Kafka "$data/server.properties" >>"$data/server.log" 2>&1
}

case ${1:-} in
check) check ;;
fetch) fetch "$2" ;;
run) run "$2" "$3" "$4" "$5" ;;
*)
    sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
    exit 2
    ;;
esac
