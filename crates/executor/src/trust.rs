//! Whom this machine trusts on the other end of a TLS connection: those whom its own list of certificates names, and
//! nobody whom a program brings along.

use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Reads the list, which takes a while: whoever calls often keeps what it gives.
pub fn trust() -> TlsConfig {
    let own = rustls_native_certs::load_native_certs().certs;
    let own: Vec<Certificate<'static>> = own.iter().map(|one| Certificate::from_der(one.as_ref()).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&own))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
