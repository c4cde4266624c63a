//! Programs of the page: those of the papers, each with files and clients that show it.
//!
//! One executable has them all (`web/programs`); the first argument selects one.

use serde::{Deserialize, Serialize};

/// Files with equal content, whose names are numbers from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFiles {
    /// Folder of the files.
    pub folder: String,
    /// Number of files.
    pub count: u16,
    /// Size of each, in bytes.
    pub bytes: u32,
}

/// Clients that each send their next request when the response has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientLoad {
    /// Number of clients.
    pub clients: u32,
    /// Paths that they get, each as often as the others; `{0..9}` stands for ten.
    pub paths: String,
    /// Number of responses that are measured.
    pub requests: u32,
    /// Port at which the program listens.
    pub port: u16,
}

/// Program with arguments, files and clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    /// Name by which the executable knows the program.
    pub name: &'static str,
    /// Summary in one line.
    pub title: &'static str,
    /// Arguments behind the name.
    pub arguments: &'static str,
    /// Files that the program finds.
    pub made: Vec<MadeFiles>,
    /// Clients, if it is a server.
    pub clients: Option<ClientLoad>,
}

const KIB: u32 = 1024;

/// Returns all examples.
pub fn examples() -> Vec<Example> {
    let files = |folder: &str, count, kib| vec![MadeFiles { folder: folder.into(), count, bytes: kib * KIB }];
    let clients = |clients, paths: &str, requests| {
        Some(ClientLoad { clients, paths: paths.into(), requests, port: 8080 })
    };
    vec![
        Example {
            name: "web",
            title: "Web server with a cache of files",
            arguments: "--root /www --threads 16 --cache 4M",
            made: files("/www", 320, 16),
            clients: clients(16, "/{0..319}", 1000),
        },
        Example {
            name: "video",
            title: "Video server: large files from disks",
            arguments: "--root /films --threads 8 --request 128K",
            made: files("/films", 8, 2048),
            clients: clients(8, "/{0..7}", 16),
        },
        Example {
            name: "streams",
            title: "Streams: 23 threads that read files",
            arguments: "--request 64K --touch /streams/{0..22}",
            made: files("/streams", 23, 512),
            clients: None,
        },
        Example {
            name: "database",
            title: "Database: SQLite with a journal",
            arguments: "/bank --rows 500 --rows-per-commit 25",
            made: Vec::new(),
            clients: None,
        },
    ]
}
