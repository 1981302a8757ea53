/* The other. */
int weldfs_test_needed(void) {
    return 2;
}
