//! Functional promises, tested over the real daemon and the guest library.
