//! Whom this machine trusts on the other end of a TLS connection: those whom its own list of certificates names, and
//! nobody whom a program brings along.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_native_certs;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Reads the list, which takes a while: whoever calls often keeps what it gives.
pub fn trust() -> TlsConfig {
    let own = load_native_certs().certs;
    let own: Vec<Certificate<'static>> = own.iter().map(|one| Certificate::from_der(one.as_ref()).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&own))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build()
}

/// The same for whoever speaks TLS over a stream of its own.
pub fn trusting_client() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
