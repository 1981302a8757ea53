//! Every kernel against an oracle that is written as plainly as can be, over the same cases.
mod checks;
mod subjects;
