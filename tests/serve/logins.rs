//! Logins of browsers: a token or the printed link becomes a cookie, which is accepted only from the
//! server's own pages.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::wait::wait_for;

use crate::server::{Answer, Server};

/// A browser on the server's own page, with its cookie.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
}

impl<'a> Browser<'a> {
    fn log_in(server: &'a Server, body: &Value) -> Self {
        let answer = server.ask_with("POST", "/api/login", &[], Some(body));
        assert_eq!(answer.status, 200, "{answer:?}");
        let set = answer.headers.get("set-cookie").unwrap().to_str().unwrap().to_owned();
        for word in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(set.contains(word), "{set}");
        }
        assert!(!set.contains("Secure"), "{set}");
        Browser { server, cookie: set.split(';').next().unwrap().to_owned() }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        self.server.ask_with(method, path, &[&[("cookie", self.cookie.as_str())], headers].concat(), body)
    }

    fn origin(&self) -> String {
        format!("http://{}", self.server.address)
    }
}

#[test]
fn login_with_token_sets_cookie_and_logout_ends_it() {
    let server = Server::start();
    let browser = Browser::log_in(&server, &json!({ "token": server.token }));
    let me = browser.ask("GET", "/api/me", &[], None).expect(200);
    assert_eq!((&me["role"], &me["user"]), (&json!("owner"), &Value::Null));
    assert_eq!(browser.ask("GET", "/settings", &[], None).status, 200);
    let own = Browser::log_in(&server, &json!({ "token": server.make_token(&["--role", "user", "--user", "u"]) }));
    let me = own.ask("GET", "/api/me", &[], None).expect(200);
    assert_eq!((&me["role"], &me["user"]), (&json!("user"), &json!("u")));
    assert_eq!(own.ask("GET", "/settings", &[], None).status, 403);
    let origin = browser.origin();
    let logged_out = browser.ask("POST", "/api/logout", &[("origin", &origin)], None);
    assert_eq!(logged_out.status, 204);
    assert!(logged_out.headers.get("set-cookie").unwrap().to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(browser.ask("GET", "/api/me", &[], None).status, 401);
    assert_eq!(own.ask("GET", "/api/me", &[], None).status, 200);
}

#[test]
fn invalid_login_is_refused() {
    let server = Server::start();
    for (body, status) in [
        (json!({ "token": "rw_wrong" }), 401),
        (json!({ "code": "0123456789abcdef0123456789abcdef" }), 401),
        (json!({ "code": server.token }), 401),
        (json!({}), 400),
        (json!({ "token": server.token, "code": "x" }), 400),
        (json!({ "token": 7 }), 400),
    ] {
        let answer = server.ask_with("POST", "/api/login", &[], Some(&body));
        assert!(answer.headers.get("set-cookie").is_none(), "{body}");
        assert!(answer.expect(status)["error"]["message"].is_string());
    }
    for cookie in ["ringwall_session=x", "ringwall_session=", &format!("ringwall_session={}", server.token)] {
        assert_eq!(server.ask_with("GET", "/api/me", &[("cookie", cookie)], None).status, 401, "{cookie}");
    }
    assert!(!server.log().contains(&server.token));
}

#[test]
fn login_ends_when_its_token_is_revoked() {
    let server = Server::start();
    let made = server.ask("POST", "/api/tokens", Some(&json!({ "role": "operator" }))).expect(201);
    let browser = Browser::log_in(&server, &json!({ "token": made["token"] }));
    assert_eq!(browser.ask("GET", "/api/me", &[], None).status, 200);
    let revoked = server.ask("DELETE", &format!("/api/tokens/{}", made["id"].as_str().unwrap()), None);
    assert_eq!(revoked.status, 204);
    assert_eq!(browser.ask("GET", "/api/me", &[], None).status, 401);
}

#[test]
fn cookie_is_accepted_only_from_own_pages() {
    let server = Server::start();
    let browser = Browser::log_in(&server, &json!({ "token": server.token }));
    let (body, origin) = (json!({ "role": "user", "user_id": "u" }), browser.origin());
    let make = |headers: &[(&str, &str)]| browser.ask("POST", "/api/tokens", headers, Some(&body)).status;
    assert_eq!(make(&[("origin", &origin)]), 201);
    assert_eq!(make(&[("origin", &origin), ("sec-fetch-site", "same-origin")]), 201);
    // No origin, another site, another port, and a request that the browser marks as same-site.
    assert_eq!(make(&[]), 403);
    assert_eq!(make(&[("origin", "http://evil.example")]), 403);
    assert_eq!(make(&[("origin", "http://127.0.0.1:1")]), 403);
    assert_eq!(make(&[("origin", &origin), ("sec-fetch-site", "same-site")]), 403);
    let read = |headers: &[(&str, &str)]| browser.ask("GET", "/api/me", headers, None).status;
    assert_eq!(read(&[("sec-fetch-site", "none")]), 200);
    assert_eq!(read(&[("sec-fetch-site", "same-site")]), 403);
    assert_eq!(read(&[("connection", "upgrade"), ("upgrade", "websocket")]), 403);
    assert_eq!(read(&[("connection", "upgrade"), ("upgrade", "websocket"), ("origin", &origin)]), 200);
    // An Authorization header overrides the cookie, also if the token is invalid.
    assert_eq!(read(&[("authorization", "Bearer wrong")]), 401);
    let listed = server.ask("GET", "/api/tokens", None).expect(200);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
}

#[test]
fn cookie_is_secure_behind_tls() {
    let server = Server::start();
    let headers = [("host", "localhost"), ("origin", "https://localhost")];
    let answer = server.ask_with("POST", "/api/login", &headers, Some(&json!({ "token": server.token })));
    assert_eq!(answer.status, 200);
    assert!(answer.headers.get("set-cookie").unwrap().to_str().unwrap().ends_with("; Secure"));
}

#[test]
fn printed_link_logs_the_owner_in_once() {
    let data = tempfile::tempdir().unwrap();
    let mut process = crate::server::command(data.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let link = lines.find_map(|line| line.split_once(": http://").map(|(_, link)| link.to_owned())).unwrap();
    let (address, code) = link.split_once("/login#").unwrap();
    let ask = || {
        let body = json!({ "code": code }).to_string();
        let request = ureq::http::Request::post(format!("http://{address}/api/login")).body(body).unwrap();
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let mut response = agent.run(request).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    };
    let (status, me) = ask();
    assert_eq!((status, me.contains("\"owner\"")), (200, true), "{me}");
    assert_eq!(ask().0, 401);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn console_paths_do_not_overlap_with_the_api() {
    let server = Server::start();
    for path in ["/", "/login", "/console", "/console/execs/e_0123456789abcdef"] {
        let answer = server.ask_with("GET", path, &[], None);
        assert_eq!(answer.status, 200, "{path}");
        let header = |name: &str| answer.headers.get(name).unwrap().to_str().unwrap();
        assert_eq!(header("content-type"), "text/html; charset=utf-8", "{path}");
        assert_eq!(header("cache-control"), "no-store");
        let policy = header("content-security-policy");
        for word in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(word), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    for path in
        ["/api/nothing", "/v1/nothing/at/all/here", "/sandbox/nothing", "/ws/nothing", "/skills/a/b", "/nothing"]
    {
        let answer = server.ask("GET", path, None);
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.headers.get("content-type").unwrap(), "application/json", "{path}");
    }
}

/// The login code in the printed link, after `#`.
fn login_code(server: &Server) -> Value {
    json!({ "code": server.link.split_once('#').unwrap().1 })
}

/// The first of eight concurrent logins uses up the code. If the server looked it up and removed it in two
/// steps, several could succeed.
#[test]
fn login_link_admits_one_of_eight_concurrent_users() {
    const ROUNDS: usize = 5;
    const USERS: usize = 8;
    for round in 0..ROUNDS {
        let server = Server::start();
        let (code, start) = (login_code(&server), Barrier::new(USERS));
        let log_in = || {
            start.wait();
            server.ask_with("POST", "/api/login", &[], Some(&code)).status
        };
        let mut statuses = thread::scope(|scope| {
            let users: Vec<_> = (0..USERS).map(|_| scope.spawn(log_in)).collect();
            users.into_iter().map(|user| user.join().unwrap()).collect::<Vec<_>>()
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401, 401, 401, 401, 401, 401, 401], "round {round} of {ROUNDS}");
    }
}

#[test]
fn login_link_of_previous_process_is_refused() {
    let server = Server::start();
    let old = login_code(&server);
    server.signal(Signal::TERM);
    let server = Server::start_in(server.leave(), &[]);
    assert_eq!(server.ask_with("POST", "/api/login", &[], Some(&old)).status, 401);
    assert_eq!(server.ask_with("POST", "/api/login", &[], Some(&login_code(&server))).status, 200, "control");
}

/// Another site's page could log the browser in with the code, or use it up. The server refuses the origin
/// before it reads the code.
#[test]
fn login_from_foreign_page_leaves_link_unused() {
    let server = Server::start();
    let (code, own) = (login_code(&server), format!("http://{}", server.address));
    assert_eq!(code["code"].as_str().unwrap().len(), 32, "128 random bits");
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example"] {
        let refused = server.ask_with("POST", "/api/login", &[("origin", origin)], Some(&code));
        assert_eq!((refused.status, refused.headers.get("set-cookie")), (403, None), "{origin}");
    }
    let admitted = server.ask_with("POST", "/api/login", &[("origin", &own)], Some(&code));
    assert_eq!(admitted.status, 200, "control");
}

#[test]
fn login_secrets_are_in_no_log() {
    let data = tempfile::TempDir::with_prefix("rw-serve-").unwrap();
    let server = Server::start_under(data, &[], &[("RINGWALL_LOG", "trace")]);
    let code = login_code(&server);
    let browser = Browser::log_in(&server, &code);
    assert_eq!(browser.ask("GET", "/api/me", &[], None).status, 200);
    assert_eq!(server.ask_with("POST", "/api/login", &[], Some(&code)).status, 401);
    let query = format!("/login?code={}", code["code"].as_str().unwrap());
    assert_eq!(server.ask_with("GET", &query, &[], None).status, 200);
    Browser::log_in(&server, &json!({ "token": server.token }));
    // Control. A request is logged after its response was sent, so the test waits.
    let log = wait_for("the log to have all logins", || {
        let log = server.log();
        (log.matches(r#""path":"/api/login""#).count() == 3 && log.contains("DEBUG")).then_some(log)
    });
    let cookie = browser.cookie.split_once('=').unwrap().1;
    for (name, secret) in [("code", code["code"].as_str().unwrap()), ("cookie", cookie), ("token", &server.token)] {
        assert!(!log.contains(secret), "the log has the {name}");
    }
}
