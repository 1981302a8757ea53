//! The report as Markdown: the tables of a document, which a document takes over between two comments.

use super::report::{InsiderReport, bytes};
use super::tables;

/// Characters of a line of prose.
const WIDE: usize = 120;

/// A paragraph in lines.
fn wrapped(text: &str) -> String {
    let (mut out, mut wide) = (String::new(), 0);
    for word in text.split_whitespace() {
        let long = word.chars().count();
        if wide > 0 && wide + 1 + long > WIDE {
            (out, wide) = (out + "\n", 0);
        }
        out += if wide > 0 { " " } else { "" };
        out += word;
        wide += long + usize::from(wide > 0);
    }
    out + "\n"
}

/// All of it.
pub(super) fn document(report: &InsiderReport) -> String {
    let m = &report.machine;
    let head = format!(
        "`{}`; {}, {} cores, kernel {}, {} build; {} of data an application, medians of {} rounds.",
        report.command,
        m.cpu,
        m.cores,
        m.kernel,
        m.build,
        bytes(report.bytes),
        report.rounds
    );
    let table = |t: &tables::Table| format!("\n### {}\n\n{}\n{}", t.title, wrapped(&t.note), t.render(true));
    wrapped(&head) + &tables::all(report).iter().map(table).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_at_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().all(|l| l.chars().count() <= WIDE && l.starts_with("word") && !l.ends_with(' ')));
        assert_eq!(text.split_whitespace().count(), 50);
        assert!(text.lines().count() == 3 && text.ends_with("word\n"));
    }
}
