//! A client that sends what it is told, byte by byte, and reads responses strictly.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connection of a client.
#[derive(Debug)]
pub struct Client(pub BufReader<TcpStream>);

/// Response with its contents.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    fields: Vec<(String, String)>,
    /// Contents, if they were read.
    pub contents: Vec<u8>,
}

impl Client {
    /// Connects to a server.
    ///
    /// # Panics
    /// As all functions of the client: if the server does not do what the protocol says.
    pub fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(socket))
    }

    /// Sends a text as it is.
    pub fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a GET with further fields, each with its line end.
    pub fn get(&mut self, path: &str, fields: &str) -> Response {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n{fields}\r\n"));
        self.response()
    }

    /// Reads the head of a response.
    pub fn head(&mut self) -> Response {
        let line = self.line();
        let status = line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("no status: '{line}'"));
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            match line.split_once(": ") {
                Some((name, value)) => fields.push((name.to_ascii_lowercase(), value.to_owned())),
                None => break assert_eq!(line, ""),
            }
        }
        Response { status: status[..3].parse().unwrap(), fields, contents: Vec::new() }
    }

    /// Reads a response with its contents.
    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        let has_contents = response.status != 304;
        if has_contents {
            response.contents = vec![0; response.bytes()];
            self.0.read_exact(&mut response.contents).unwrap();
        }
        response
    }

    /// Returns true if the server has ended the connection, or does so before the time limit of reads.
    pub fn is_ended(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line end: '{line}'")).to_owned()
    }
}

impl Response {
    /// Returns the value of a field, by its name in small letters; an empty text if there is none.
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the length that the head states.
    pub fn bytes(&self) -> usize {
        self.field("content-length").parse().unwrap()
    }
}
