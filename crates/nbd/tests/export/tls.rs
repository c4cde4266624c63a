//! Tests of TLS: what is served before it, who may be a client, and clients of other projects.

use crate::client::{Client, EXPORT_NAME, FLUSH, LIST, READ, STRUCTURED_REPLY, request};
use crate::served::memory;
use crate::strangers::{has, run};
use bywash_nbd::{Disk, Error, Event, Export, Options, Tls};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const STARTTLS: u32 = 5;
const ERR_INVALID: u32 = (1 << 31) + 3;
const ERR_TLS_REQD: u32 = (1 << 31) + 5;

/// Certificate and key, as texts.
struct Identity {
    certificate: String,
    key: String,
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

struct Secure {
    authority: Authority,
    port: u16,
    events: Receiver<Event>,
    _export: Export,
}

impl Secure {
    fn new() -> Secure {
        let authority = Authority::new();
        let server = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
        let (certificate, key) = (server.certificate.as_bytes(), server.key.as_bytes());
        let tls = Tls::from_pem(certificate, key, authority.certificate.as_bytes()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, events) = channel();
        let report = move |event| drop(sender.send(event));
        let disks = vec![Disk::new("disk", memory())];
        let _export = Export::start(listener, disks, Options::new().tls(tls), report).unwrap();
        Secure { authority, port, events, _export }
    }

    fn client(&self) -> Client {
        let mut client = Client::over_tcp(self.port);
        client.send(&3u32.to_be_bytes());
        client
    }

    /// Connects, begins TLS with an identity, and shakes hands within it.
    fn secure(&self, identity: Option<&Identity>) -> std::io::Result<Client> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[&3u32.to_be_bytes()[..], &crate::client::option(STARTTLS, b"")].concat()).unwrap();
        let mut reply = [0; 20];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..16], 1u32.to_be_bytes());
        let mut roots = RootCertStore::empty();
        let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
        roots.add(certificate(&self.authority.certificate)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate: own, key }) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate(own)], key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        // A server that does not let the client in says so by now.
        stream.write_all(&crate::client::option(LIST, b""))?;
        stream.flush()?;
        let mut listed = [0; 20 + 4 + 4 + 20];
        stream.read_exact(&mut listed)?;
        Ok(Client { stream: Box::new(stream), is_structured: false, bytes: 0, flags: 0 })
    }

    fn cut_off(&self) -> String {
        loop {
            if let Event::CutOff { error, .. } = self.events.recv_timeout(Duration::from_secs(20)).unwrap() {
                return error.to_string();
            }
        }
    }
}

#[test]
fn nothing_is_served_before_tls() {
    let secure = Secure::new();
    let mut client = secure.client();
    for number in [LIST, STRUCTURED_REPLY, 7, 10, 77] {
        assert_eq!(client.option(number, b"")[0].0, ERR_TLS_REQD, "{number}");
    }
    assert_eq!(client.option(STARTTLS, b"x")[0].0, ERR_INVALID);
    client.send(&crate::client::option(1, b"disk"));
    assert_eq!(client.rest(), b"");
    assert!(secure.cut_off().contains("without TLS"));
    // What is sent in the clear behind the option is not taken for bytes within TLS.
    let mut client = secure.client();
    client.send(&[crate::client::option(STARTTLS, b""), crate::client::option(LIST, b"")].concat());
    assert_eq!(client.rest(), b"");
    assert!(secure.cut_off().contains("before TLS had begun"));
}

#[test]
fn a_client_with_a_certificate_is_served() {
    let secure = Secure::new();
    let identity = secure.authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    let mut client = secure.secure(Some(&identity)).unwrap();
    assert_eq!(client.option(STARTTLS, b"")[0].0, ERR_INVALID);
    client.go("disk");
    let data: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 512 % 251) as u8).collect();
    assert_eq!(client.write(0, 4096, &data), 0);
    assert_eq!(client.read(4096, data.len()), data);
    // More than the depth, and than is received at a time.
    for _ in 0..10 {
        client.send(&request(READ, 0, 1, 4096, 8192).repeat(100));
        for _ in 0..100 {
            assert_eq!(client.reply(), (0, 1));
            assert_eq!(client.take(8192), data[..8192]);
        }
    }
    client.send(&request(2, 0, 0, 0, 0));
    assert_eq!(client.rest(), b"", "the end is told within TLS");
}

#[test]
fn a_client_that_has_declined_zeros_before_tls_gets_none_within_it() {
    let secure = Secure::new();
    let identity = secure.authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    let mut client = secure.secure(Some(&identity)).unwrap();
    client.send(&crate::client::option(EXPORT_NAME, b"disk"));
    client.take(10);
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn other_clients_are_not_served() {
    let secure = Secure::new();
    let stranger = Authority::new().sign(ExtendedKeyUsagePurpose::ClientAuth);
    let server = secure.authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    for identity in [None, Some(&stranger), Some(&server)] {
        assert!(secure.secure(identity).is_err());
        let reason = secure.cut_off();
        assert!(reason.contains("certificate"), "{reason}");
    }
    // Bytes that are no TLS.
    let mut client = secure.client();
    assert_eq!(client.option(STARTTLS, b"")[0].0, 1);
    client.send(&[0; 64]);
    client.rest();
    secure.cut_off();
    let identity = secure.authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    let mut client = secure.secure(Some(&identity)).unwrap();
    client.go("disk");
    assert_eq!(client.ask(FLUSH, 0, 0, 0), 0);
}

#[test]
fn certificates_that_cannot_be_used_are_refused() {
    let authority = Authority::new();
    let one = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    let other = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    let (root, nothing) = (&authority.certificate, String::new());
    for (certificate, key, roots, reason) in [
        (&nothing, &one.key, root, "the server's certificate"),
        (&one.certificate, &nothing, root, "the server's key"),
        (&one.certificate, &other.key, root, "the server's certificate"),
        (&one.certificate, &one.key, &nothing, "the authorities"),
    ] {
        let made = Tls::from_pem(certificate.as_bytes(), key.as_bytes(), roots.as_bytes());
        let Err(Error::Tls(told)) = made else { panic!("{made:?}") };
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn nbdcopy_and_nbdinfo_use_tls() {
    if !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let secure = Secure::new();
    let folder = tempfile::tempdir().unwrap();
    let identity = secure.authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    for (name, text) in [
        ("ca-cert.pem", &secure.authority.certificate),
        ("client-cert.pem", &identity.certificate),
        ("client-key.pem", &identity.key),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let certificates = folder.path().display();
    let uri = format!("nbds://localhost:{}/disk?tls-certificates={certificates}", secure.port);
    let text = run(folder.path(), "nbdinfo", &[&uri]);
    assert!(text.contains("newstyle-fixed with TLS, using structured packets"), "{text}");
    let data: Vec<u8> = (0..8u32 << 20).map(|at| (at / 512 % 251) as u8).collect();
    std::fs::write(folder.path().join("data"), &data).unwrap();
    run(folder.path(), "nbdcopy", &["--flush", "data", &uri]);
    run(folder.path(), "nbdcopy", &[&uri, "copy"]);
    assert!(std::fs::read(folder.path().join("copy")).unwrap() == data);
}
