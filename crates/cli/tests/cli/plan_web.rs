//! `bywash plan web`: the page, served to programs of this machine and written to a folder.
//!
//! What the page does in a browser is tested by `web/tests`. A command that was built without the page says
//! so.

use crate::place::{TestFolder, stderr, stdout};
use std::fs;

#[cfg(not(feature = "page"))]
#[test]
fn a_command_without_the_page_says_how_to_get_one() {
    let place = TestFolder::new();
    for words in [&["plan", "web", "--port", "0"][..], &["plan", "web", "--export", "here"]] {
        let output = place.bywash(words).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("make page"), "{}", stderr(&output));
        assert!(stdout(&output).is_empty() && fs::read_dir(place.path()).unwrap().next().is_none());
    }
}

#[cfg(feature = "page")]
mod with_the_page {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::{Child, Stdio};
    use std::time::Duration;

    /// Timeout of everything in these tests.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A command that serves.
    struct Serving {
        child: Child,
        /// `127.0.0.1:PORT`
        address: String,
    }

    impl Serving {
        fn start(place: &TestFolder) -> Serving {
            let mut command = place.bywash(&["plan", "web", "--port", "0"]);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
            Serving { address: address.expect(&line).to_owned(), child }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(&self.address).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream
        }

        /// The head and the content of an answer.
        fn ask(&self, request: &str) -> (String, String) {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, content) = answer.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), content.to_owned())
        }
    }

    impl Drop for Serving {
        fn drop(&mut self) {
            // One that has ended needs neither.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn what_is_served_is_what_is_exported() {
        let place = TestFolder::new();
        let output = place.bywash(&["plan", "web", "--export", "some/where"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), "some/where/index.html\n");
        let page = fs::read_to_string(place.path().join("some/where/index.html")).unwrap();

        let serving = Serving::start(&place);
        let (head, content) = serving.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(content == page, "{} bytes served, {} written", content.len(), page.len());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for line in ["Content-Type: text/html; charset=utf-8", "X-Content-Type-Options: nosniff"] {
            assert!(head.contains(line), "{head}");
        }
        assert!(head.contains(&format!("Content-Length: {}", page.len())), "{head}");
        let (again, nothing) = serving.ask("HEAD / HTTP/1.1\r\n\r\n");
        assert_eq!((again, nothing.as_str()), (head, ""));
    }

    #[test]
    fn nothing_else_is_served() {
        let serving = Serving::start(&TestFolder::new());
        for (request, wanted) in [
            ("GET /../../etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            ("DELETE / HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
        ] {
            let (head, _) = serving.ask(request);
            assert!(head.starts_with(wanted), "{request}: {head}");
        }
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting() {
        let serving = Serving::start(&TestFolder::new());
        let silent: Vec<TcpStream> = (0..5).map(|_| serving.connect()).collect();
        assert!(serving.ask("GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 200"));
        // They are let go after a while: the end of the stream is seen.
        for mut stream in silent {
            assert!(matches!(stream.read(&mut [0; 1]), Ok(0)));
        }
    }

    #[test]
    fn a_signal_ends_it() {
        // Not SIGINT: where a shell runs the tests in the background it is ignored, and then so by the
        // command.
        let mut serving = Serving::start(&TestFolder::new());
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(serving.child.id() as i32, libc::SIGTERM) }, 0);
        assert_eq!(serving.child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let place = TestFolder::new();
        let serving = Serving::start(&place);
        let port = serving.address.rsplit(':').next().unwrap();
        place.file("taken", "");
        for (words, wanted) in [
            (
                &["plan", "web", "--port", port][..],
                format!("cannot serve on 127.0.0.1:{port}: Address already in use"),
            ),
            (&["plan", "web", "--export", "taken"], "cannot write 'taken'".to_owned()),
            (&["plan", "web", "--export", "/proc/none"], "cannot write '/proc/none'".to_owned()),
            (&["plan", "web", "--port", "70000"], "70000".to_owned()),
            (&["plan", "web", "--port", "1", "--export", "x"], "cannot be used with".to_owned()),
        ] {
            let output = place.bywash(words).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{words:?}");
            assert!(stderr(&output).contains(&wanted), "{}", stderr(&output));
        }
    }
}
