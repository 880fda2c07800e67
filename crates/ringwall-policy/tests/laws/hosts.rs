//! Laws of hosts and lists, on random text.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use ringwall_policy::{NetEntry, NetHost, NetList};

/// Few labels, so that names are often subdomains of each other.
fn name() -> impl Strategy<Value = String> {
    vec(select(&["a", "b", "good", "evil", "xn--e1a", "a_b", "1"][..]), 1..4)
        .prop_map(|labels| format!("{}.com", labels.join(".")))
}

fn entry() -> impl Strategy<Value = String> {
    let stars = select(&["", "*."][..]);
    (stars, name(), select(&["", ":80", ":443", ":8080"][..]))
        .prop_map(|(stars, name, port)| format!("{stars}{name}{port}"))
}

fn list() -> impl Strategy<Value = NetList> {
    vec(entry(), 0..5).prop_map(|entries| NetList::read(entries).expect("good entries"))
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        let _ = text.parse::<NetHost>();
        let _ = NetEntry::read(&text);
    }

    #[test]
    fn host_and_list_are_read_back(text in "[ -~]{0,40}") {
        if let Ok(host) = text.parse::<NetHost>() {
            prop_assert_eq!(host.to_string().parse::<NetHost>(), Ok(host));
        }
        if let Ok(list) = NetList::read([&text]) {
            prop_assert_eq!(NetList::read(list.words()), Ok(list));
        }
    }

    /// No host that is read as a name could be read as an address by a browser.
    #[test]
    fn name_does_not_end_with_number(text in "[0-9a-fx.]{1,20}") {
        if let Ok(NetHost::Name(name)) = text.parse::<NetHost>() {
            let last = name.rsplit('.').next().unwrap_or_default();
            let hexadecimal = last.strip_prefix("0x").is_some_and(|rest| u128::from_str_radix(rest, 16).is_ok());
            prop_assert!(last.parse::<u128>().is_err() && !hexadecimal && last != "0x", "{}", name);
        }
    }

    #[test]
    fn case_and_trailing_dot_change_nothing(name in name(), list in list(), port in select(&[80, 443, 8080][..])) {
        let find = |text: String| {
            let host = text.parse::<NetHost>().expect("a good name");
            list.find(&host, port).map(NetEntry::to_string)
        };
        let plain = find(name.clone());
        prop_assert_eq!(&plain, &find(name.to_uppercase()));
        prop_assert_eq!(&plain, &find(format!("{name}.")));
    }

    /// A list that does not exceed another allows nothing that the other does not.
    #[test]
    fn covered_list_allows_no_more(
        inner in list(), outer in list(), name in name(), port in select(&[80, 443, 8080][..]),
    ) {
        let host = name.parse::<NetHost>().expect("a good name");
        if outer.exceeded_by(&inner).is_none() && inner.find(&host, port).is_some() {
            prop_assert!(outer.find(&host, port).is_some());
        }
        prop_assert!(outer.exceeded_by(&outer).is_none());
    }

    #[test]
    fn similar_name_is_not_allowed(name in name(), before in "[a-z]{1,5}", after in "[a-z]{1,5}") {
        let list = NetList::read([&name, &format!("*.{name}")]).expect("good entries");
        for other in [format!("{before}{name}"), format!("{name}.{after}"), format!("{name}{after}")] {
            let host = other.parse::<NetHost>().expect("a good name");
            prop_assert!(list.find(&host, 443).is_none(), "{}", other);
        }
    }
}
