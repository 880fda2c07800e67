//! Pages that several tests use, or that need more than a body.

/// Status, further headers, and body.
pub fn page(target: &str) -> Option<(&'static str, &'static str, String)> {
    let path = target.split('?').next()?;
    let found = match path {
        "/plain" => ("200 OK", "", "<title>Plain</title><h1>Plain</h1><p>nothing to see".to_owned()),
        "/echo" => ("200 OK", "", format!("<title>Echo</title><pre>{}</pre>", target.replace('<', "&lt;"))),
        "/redirect" => ("302 Found", "location: /plain\r\n", String::new()),
        "/to-a-file" => ("302 Found", "location: file:///etc/passwd\r\n", String::new()),
        "/missing" => ("404 Not Found", "", "<title>Missing</title>not here".to_owned()),
        "/report" => (
            "200 OK",
            "content-type: application/octet-stream\r\ncontent-disposition: attachment; filename=\"report.csv\"\r\n",
            "a,b\n1,2\n".to_owned(),
        ),
        "/escape" => (
            "200 OK",
            "content-type: application/octet-stream\r\ncontent-disposition: attachment; filename=\"../../../../tmp/../x/..%2fpasswd\"\r\n",
            "mine".to_owned(),
        ),
        "/notes.txt" => ("200 OK", "content-type: text/plain\r\n", "only text".to_owned()),
        _ => return Some(("404 Not Found", "", "nothing".to_owned())),
    };
    Some(found)
}
