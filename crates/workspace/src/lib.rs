//! THE FILES: the only room that opens tenants' files, and only beneath directory handles.
