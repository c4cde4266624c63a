//! Identities: certificates, their fingerprints, and the verification of a peer's certificate.
//!
//! A certificate carries a key; its name, dates and issuer are ignored. It is trusted by the SHA-256 of its
//! DER form, which `openssl x509 -fingerprint -sha256` prints for an identity file.
//!
//! Invariant: whichever certificates are trusted, the peer proves that it holds the certificate's key, since
//! the signature of the handshake is always verified. Called by `handshake`.

use crate::error::Error;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// Name in every certificate, which a connector asks for and nobody checks.
pub(super) const NAME: &str = "bywash-flow";

/// Greatest size of an identity file, in bytes.
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;

/// Permission bits of group and others, which a file with a key must not have.
const OTHERS: u32 = 0o077;

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

impl Fingerprint {
    fn new(certificate: &CertificateDer<'_>) -> Fingerprint {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    /// Parses 64 hexadecimal digits in either case, with or without colons between the pairs.
    fn from_str(text: &str) -> Result<Fingerprint, Error> {
        let digits: Option<Vec<u8>> =
            text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() == 2 * SHA256_OUTPUT_LEN => {
                Ok(Fingerprint(std::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1])))
            }
            _ => Err(Error::Usage(format!(
                "{text} is no fingerprint: it is the SHA-256 of a certificate, {} hexadecimal digits",
                2 * SHA256_OUTPUT_LEN
            ))),
        }
    }
}

/// A certificate and its private key.
pub(super) struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Returns the identity in `file`, which is created if it does not exist, or a new identity without a
    /// file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or created, or no certificate can be generated;
    /// [`Error::Usage`] if the file is readable by others or holds no identity.
    pub(super) fn get(file: Option<&Path>) -> Result<Identity, Error> {
        let Some(path) = file else {
            return Ok(Identity::make()?.0);
        };
        match Identity::read(path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let (_, pem) = Identity::make()?;
                keep(path, &pem)?;
                // The file is read back, since another flow may have created it first.
                Identity::read(path)
            }
            other => other,
        }
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new(&self.certificate)
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    fn make() -> Result<(Identity, String), Error> {
        let failed = |error| Error::io("make a certificate", std::io::Error::other(error));
        let made = rcgen::generate_simple_self_signed([NAME.to_string()]).map_err(failed)?;
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        Ok((Identity { certificate: made.cert.der().clone(), key }, pem))
    }

    fn read(path: &Path) -> Result<Identity, Error> {
        let failed = |error| Error::io(format!("read the identity {}", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let status = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        if status.st_mode & OTHERS != 0 {
            return Err(Error::Usage(format!(
                "the identity {} holds a key and is open to others: chmod 600 it, or take another file",
                path.display()
            )));
        }
        let mut pem = Vec::new();
        file.take(IDENTITY_BYTES_MAX).read_to_end(&mut pem).map_err(failed)?;
        match (CertificateDer::from_pem_slice(&pem), PrivateKeyDer::from_pem_slice(&pem)) {
            (Ok(certificate), Ok(key)) => Ok(Identity { certificate, key }),
            _ => Err(Error::Usage(format!(
                "{} is no identity: it needs a certificate and a private key in PEM; a file that is missing is made",
                path.display()
            ))),
        }
    }
}

/// Writes a new identity to `path` atomically, so that nobody reads half a key. An existing file is kept.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written or linked.
fn keep(path: &Path, pem: &str) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io(format!("write the identity {}", path.display()), error);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = Path::new(&name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file =
        File::from(open(temporary, flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.into()))?);
    let written = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match linkat(CWD, temporary, CWD, path, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    });
    let removed = fs::remove_file(temporary);
    linked.and(removed).map_err(failed)
}

/// Verifier of the peer's certificate.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    pin: Option<Fingerprint>,
    seen: OnceLock<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl PeerVerifier {
    /// Creates a verifier that accepts only the certificate with the fingerprint `pin`, or any without a pin.
    pub(super) fn new(pin: Option<Fingerprint>, provider: Arc<CryptoProvider>) -> PeerVerifier {
        PeerVerifier { pin, seen: OnceLock::new(), provider }
    }

    /// Returns the pin and the fingerprint of the peer, if they differ.
    pub(super) fn mismatch(&self) -> Option<(Fingerprint, Fingerprint)> {
        let (pin, seen) = (self.pin?, *self.seen.get()?);
        (pin != seen).then_some((pin, seen))
    }

    fn admit(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let fingerprint = Fingerprint::new(certificate);
        // The fingerprint is kept for the error message; the first peer counts.
        let _ = self.seen.set(fingerprint);
        match self.pin {
            Some(pin) if pin != fingerprint => Err(CertificateError::ApplicationVerificationFailure.into()),
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    /// Refuses TLS 1.2, since QUIC has TLS 1.3 only (RFC 9001, section 4.2).
    fn never() -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 has no place in QUIC".into()))
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.admit(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        PeerVerifier::never()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.admit(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        PeerVerifier::never()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_fingerprint_is_read_as_it_is_shown_and_as_openssl_shows_it() {
        let shown = Identity::get(None).unwrap().fingerprint();
        assert_eq!(shown.to_string().parse::<Fingerprint>().unwrap(), shown);
        let pairs: Vec<String> = shown
            .to_string()
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
            .collect();
        assert_eq!(pairs.join(":").parse::<Fingerprint>().unwrap(), shown);
        for wrong in ["", "12", "zz", &"é".repeat(64), &"1".repeat(65)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_identity_is_kept_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("me.pem");
        let first = Identity::get(Some(&path)).unwrap().fingerprint();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Identity::get(Some(&path)).unwrap().fingerprint(), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Identity::get(Some(&path)), Err(Error::Usage(text)) if text.contains("chmod 600")));
    }

    #[test]
    fn what_is_no_identity_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("me.pem");
        keep(&path, "nonsense").unwrap();
        assert!(
            matches!(Identity::get(Some(&path)), Err(Error::Usage(text)) if text.contains("no identity"))
        );
    }
}
