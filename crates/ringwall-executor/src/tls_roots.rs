//! TLS roots come from the system store only; no bundled certificates.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::load_native_certs;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Reads the system store, which is slow; callers keep the result.
pub fn trust() -> TlsConfig {
    let own = load_native_certs().certs;
    let own: Vec<Certificate<'static>> = own.iter().map(|one| Certificate::from_der(one.as_ref()).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&own))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build()
}

/// The same for callers that run TLS over their own stream.
pub fn trusting_client() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
