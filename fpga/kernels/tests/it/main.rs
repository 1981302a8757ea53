//! Tests of the kernels from outside: back-ends that are shared objects, against the references.

mod compare;
mod rtl;
mod shared_object;
