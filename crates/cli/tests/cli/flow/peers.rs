//! Programs that others wrote at the other end, and SHA-256 over everything that was moved.

use super::{BackgroundChild, flows, free_port, noise, run, wait_for, wait_for_port};
use crate::place::{TestFolder, stdout};
use std::process::Stdio;

fn sum(place: &TestFolder, name: &str) -> String {
    stdout(&run(place.command("sha256sum").arg(name))).split(' ').next().unwrap().to_owned()
}

#[test]
fn netcat() {
    let place = TestFolder::new();
    place.file("from", noise(6 << 20));
    let port = free_port();
    let (listen, connect) = (format!("tcp-listen:127.0.0.1:{port}"), format!("tcp:127.0.0.1:{port}"));
    let number = port.to_string();
    let nc =
        BackgroundChild::start(place.command("sh").args(["-c", &format!("nc -l 127.0.0.1 {number} > to")]));
    wait_for_port(port);
    flows(&place, &["from", &connect]);
    nc.succeeds();
    assert_eq!(sum(&place, "from"), sum(&place, "to"));
    let receiver = BackgroundChild::flow(&place, &[&listen, "back"]);
    wait_for_port(port);
    run(place.command("sh").args(["-c", &format!("nc -N 127.0.0.1 {number} < from")]));
    receiver.succeeds();
    assert_eq!(sum(&place, "from"), sum(&place, "back"));
}

#[test]
fn socat() {
    let place = TestFolder::new();
    place.file("from", noise(6 << 20));
    let receiver = BackgroundChild::flow(&place, &["unix-listen:socket", "to"]);
    wait_for("the socket", || place.path().join("socket").exists());
    run(place.command("socat").args(["-u", "OPEN:from", "UNIX-CONNECT:socket"]));
    receiver.succeeds();
    assert_eq!(sum(&place, "from"), sum(&place, "to"));
    let port = free_port();
    let socat = BackgroundChild::start(place.command("socat").args([
        "-u",
        &format!("TCP-LISTEN:{port},bind=127.0.0.1"),
        "CREATE:back",
    ]));
    wait_for_port(port);
    flows(&place, &["--by", "reference", "from", &format!("tcp:127.0.0.1:{port}")]);
    socat.succeeds();
    assert_eq!(sum(&place, "from"), sum(&place, "back"));
}

/// nginx with the folder of `place`, at a port of its own.
fn nginx(place: &TestFolder) -> (BackgroundChild, u16) {
    let port = free_port();
    let folder = place.path().display();
    let configuration = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
         events {{}}
         http {{
           access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
           fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
           server {{ listen 127.0.0.1:{port}; root {folder}; }}
         }}"
    );
    place.file("nginx.conf", configuration);
    let conf = place.path().join("nginx.conf");
    let nginx = BackgroundChild::start(
        place.command("/usr/sbin/nginx").arg("-c").arg(conf).args(["-p", &folder.to_string()]),
    );
    wait_for_port(port);
    (nginx, port)
}

#[test]
fn curl_and_nginx_through_a_forwarder() {
    let place = TestFolder::new();
    place.file("from", noise(9 << 20));
    let (_nginx, web) = nginx(&place);
    for via in ["splice", "buffer"] {
        let port = free_port();
        let (here, there) = (format!("tcp-listen:127.0.0.1:{port}"), format!("tcp:127.0.0.1:{web}"));
        let forwarder = BackgroundChild::flow(&place, &["--via", via, &here, &there]);
        wait_for_port(port);
        run(place.command("curl").args(["-sS", "-f", "-o", "to", &format!("http://127.0.0.1:{port}/from")]));
        forwarder.succeeds();
        assert_eq!(sum(&place, "from"), sum(&place, "to"), "{via}");
    }
}

#[test]
fn a_web_server_as_a_source_and_a_client_as_a_sink() {
    let place = TestFolder::new();
    place.file("from", noise(9 << 20));
    let (_nginx, web) = nginx(&place);
    place.file("request", "GET /from HTTP/1.0\r\n\r\n");
    // What nginx answers, by way of a flow both ways.
    let mut asking = place.bywash(&["flow", "-q", &format!("tcp:127.0.0.1:{web}"), "unix-listen:socket"]);
    let asking = BackgroundChild::start(&mut asking);
    wait_for("the socket", || place.path().join("socket").exists());
    // nginx gives up on a client that has nothing more to say.
    let script = "{ cat request; sleep 2; } | socat STDIO UNIX-CONNECT:socket | sed '1,/^\\r$/d' > to";
    run(place.command("bash").args(["-c", script]).stdin(Stdio::null()));
    asking.succeeds();
    assert_eq!(sum(&place, "from"), sum(&place, "to"));
}
