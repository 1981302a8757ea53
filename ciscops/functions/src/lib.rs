//! Built-in compute functions, in a crate of their own so that the client side stays light.
