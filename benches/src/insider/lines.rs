//! Lines of code, counted in the text that this program was built from.

/// Lines that are neither empty nor a comment; what follows `#[cfg(test)]` is not counted.
pub(super) fn code(source: &str) -> usize {
    let own = source.split("#[cfg(test)]\nmod ").next().unwrap_or(source);
    own.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Those of the items whose first line holds one of these words: from that line to the brace that closes it.
pub(super) fn items(source: &str, words: &[&str]) -> usize {
    let mut lines = source.lines();
    let mut count = 0;
    while let Some(first) = lines.next() {
        let begins = ["struct ", "impl", "fn ", "type "]
            .iter()
            .any(|kind| first.trim_start_matches("pub ").trim_start_matches("pub(super) ").starts_with(kind));
        if !begins || !words.iter().any(|word| first.contains(word)) {
            continue;
        }
        let mut item = vec![first];
        if first.ends_with('{') {
            item.extend(lines.by_ref().take_while(|line| *line != "}"));
            item.push("}");
        }
        count += code(&item.join("\n"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_and_comments_and_tests_are_not() {
        let own = "//! a\n\nfn a() {\n    // why\n    b();\n}\n\n/// c\nstruct Rest;\n\n";
        let text = &format!("{own}#[cfg(test)]\nmod tests {{\n    x\n}}\n");
        assert_eq!(code(text), 4);
        assert_eq!(items(text, &["fn a"]), 3);
        assert_eq!(items(text, &["Rest"]), 1);
        assert_eq!(items(text, &["fn a", "Rest"]), 4);
    }

    #[test]
    fn every_item_that_an_application_names_is_there() {
        use crate::insider::apps::{APPS, SHARED};
        for app in &APPS {
            for item in app.host_items.iter().chain(app.rest_items) {
                let found = items(app.source, &[item]) + items(SHARED, &[item]);
                assert!(found > 0, "{}: {item}", app.name);
            }
        }
    }
}
