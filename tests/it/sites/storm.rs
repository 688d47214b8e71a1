//! Many applications at random.
