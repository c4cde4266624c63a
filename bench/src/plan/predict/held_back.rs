//! Workloads that were named before the method existed, and that first ran when it was finished.

use super::tried::PYTHON;
use super::{PLAIN, Workload};

/// Script that makes `files` of 64 KiB of text.
const FILES: &str = "mkdir files; for i in $(seq $((3000 / SCALE))); do \
                     head -c 49152 /dev/urandom | base64 -w 76 | head -c 65536 > files/$i; done";

/// Workloads that were held back.
pub(super) const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "LMDB",
        needs: &["mdb_load", "mdb_dump"],
        prepare: "awk -v n=$((200000 / SCALE)) 'BEGIN { srand(3); print \"VERSION=3\\nformat=print\\ntype=btree\\n\
                  mapsize=1073741824\\nHEADER=END\"; for (i = 0; i < n; i++) \
                  printf \" key%08d%08d\\n %050d\\n\", rand() * 100000000, i, i; print \"DATA=END\" }' > records.txt",
        before: "rm -f new.mdb*",
        program: "sh -c 'mdb_load -n -f records.txt new.mdb && mdb_dump -n new.mdb'",
        ..PLAIN
    },
    Workload {
        name: "git",
        needs: &["git"],
        prepare: "git init -q --bare repository; awk -v n=$((5000 / SCALE)) 'BEGIN { srand(4); for (i = 1; i <= n; i++) { \
                  text = \"\"; for (j = 0; j < 60; j++) text = text sprintf(\"line %d %d\\n\", j, rand() * 1000000); \
                  printf \"commit refs/heads/main\\ncommitter A <a@b> %d +0000\\ndata 4\\nwork\", 1600000000 + i; \
                  printf \"\\nM 100644 inline file%d\\ndata %d\\n%s\\n\", i % 100, length(text), text } }' | \
                  git -C repository fast-import --quiet",
        before: "rm -rf copy",
        program: "sh -c 'git clone -q --no-local -b main repository copy && git -C copy fsck --full'",
        ..PLAIN
    },
    Workload {
        name: "tar",
        needs: &["tar"],
        prepare: FILES,
        before: "rm -f files.tar",
        program: "tar -cf files.tar files",
        ..PLAIN
    },
    Workload {
        name: "rsync",
        needs: &["rsync"],
        prepare: FILES,
        before: "rm -rf copy",
        program: "sh -c 'rsync -a files/ copy && rsync -a files/ copy'",
        ..PLAIN
    },
    Workload {
        name: "nginx",
        needs: &["nginx", "ab"],
        prepare: "head -c 16384 /dev/urandom > page; cat > serve.sh <<'END'\n\
                  port=$(cat port)\n\
                  nginx -p $PWD -c $PWD/conf -e $PWD/errors &\n\
                  until ab -n 1 http://127.0.0.1:$port/page > /dev/null 2>&1; do sleep 0.05; done\n\
                  ab -k -c 4 -n $1 http://127.0.0.1:$port/page; status=$?; kill %1; wait; exit $status\nEND\n\
                  python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 0)); \
                  print(s.getsockname()[1])' > port; \
                  printf 'user root; daemon off; worker_processes 1; pid %s/pid; events {} \
                  http { access_log off; server { listen 127.0.0.1:%s; root %s; keepalive_requests 1000000; } }' \
                  $PWD $(cat port) $PWD > conf",
        program: "bash serve.sh 50000",
        ..PLAIN
    },
    Workload {
        name: "Redis",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        prepare: "cat > serve.sh <<'END'\n\
                  redis-server --port 0 --unixsocket $PWD/s --dir $PWD --save '' --appendonly yes \
                  --appendfsync everysec > log 2>&1 &\n\
                  until redis-cli -s $PWD/s ping > /dev/null 2>&1; do sleep 0.05; done\n\
                  redis-benchmark -s $PWD/s -t set -n 50000 -r 100000 -q; status=$?; kill %1; wait; exit $status\nEND\n",
        before: "rm -rf appendonlydir s",
        program: "bash serve.sh",
        ..PLAIN
    },
    Workload {
        name: "PostgreSQL",
        needs: &["initdb", "postgres", "pgbench", "pg_isready", "unshare"],
        prepare: "cat > serve.sh <<'END'\n\
                  postgres -D $PWD/data -k $PWD -c listen_addresses= -c shared_buffers=16MB > log 2>&1 &\n\
                  server=$!; until pg_isready -q -h $PWD; do sleep 0.05; done\n\
                  \"$@\"; status=$?; kill -INT $server; wait $server; exit $status\nEND\n\
                  user='unshare --user --map-user=1000 --map-group=1000 --'; \
                  $user initdb --username=bench --auth=trust --no-sync -D $PWD/data > log && \
                  $user bash serve.sh pgbench --username=bench -h $PWD -i -q -s 20 postgres 2> log",
        program: "bash serve.sh pgbench --username=bench -h $PWD -n -S -c 1 -t 20000 --random-seed=1 postgres",
        is_unprivileged: true,
        ..PLAIN
    },
    Workload {
        name: "Python, compiling",
        needs: &[PYTHON],
        prepare: "cp -rL $(/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))') library; \
                  rm -rf library/test library/lib2to3 library/*-packages library/sitecustomize.py",
        before: "find library -name __pycache__ -prune -exec rm -r {} +",
        program: "/usr/bin/python3 -m compileall -q library",
        ..PLAIN
    },
    Workload {
        name: "a compiler",
        needs: &["g++"],
        prepare: "echo '#include <bits/stdc++.h>' > all.cc",
        program: "sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do g++ -fsyntax-only all.cc || exit 1; done'",
        ..PLAIN
    },
    Workload {
        name: "SQLite, VACUUM",
        needs: &["sqlite3"],
        prepare: "sqlite3 large.db \"PRAGMA journal_mode=off; PRAGMA synchronous=off; CREATE TABLE t(a INTEGER, b TEXT); \
                  WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<$((560000 / SCALE))) \
                  INSERT INTO t SELECT x, hex(randomblob(250)) FROM c; PRAGMA journal_mode=delete;\" > log",
        program: "sqlite3 large.db 'PRAGMA cache_size=-2000; VACUUM'",
        ..PLAIN
    },
];
