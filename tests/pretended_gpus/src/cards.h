/* What the pretended cards are: environment variables, which all of these libraries read alike (README.md lists them). */
#ifndef PRETENDED_CARDS
#define PRETENDED_CARDS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CARDS 16
#define MAX_SLICES 7 /* of a card in MIG mode */
enum { SWITCHES, PAIRS };

static inline const char *text_setting(const char *name, const char *usual) {
    const char *set = getenv(name);
    return set && *set ? set : usual;
}
static inline long long setting(const char *name, long long usual) {
    const char *set = text_setting(name, NULL);
    return set ? strtoll(set, NULL, 10) : usual;
}
static inline int num_cards(void) {
    long long count = setting("PRETEND_GPUS", 0);
    return (int)(count > MAX_CARDS ? MAX_CARDS : count);
}
static inline const char *card_name(void) { return text_setting("PRETEND_NAME", "NVIDIA H100 80GB HBM3"); }
static inline unsigned long long card_memory(void) { return (unsigned long long)setting("PRETEND_MEMORY", 2ll << 30); }
static inline int lost_card(void) { return (int)setting("PRETEND_LOST", -1); }
static inline int num_slices(void) { /* of each card; 0: MIG mode is off */
    long long count = setting("PRETEND_MIG", 0);
    return (int)(count > MAX_SLICES ? MAX_SLICES : count);
}
static inline void slice_name(char *to, size_t room) { snprintf(to, room, "%s MIG 1g", card_name()); }
/* As CUDA counts them: 1000 times the major version that the driver supports, and 10 times the minor one. */
static inline int supported_cuda(void) { return (int)setting("PRETEND_CUDA", 13000); }
static inline int bus_of(int card) { return 0x10 + card; }

/* A card's own identity, or its slice's (-1: the card). PRETEND_NODE tells the cards of several pretended nodes apart. */
static inline void uuid_bytes(int card, int slice, unsigned char bytes[16]) {
    memset(bytes, 0, 16);
    bytes[0] = 0xc0, bytes[1] = 0xde;
    bytes[13] = (unsigned char)setting("PRETEND_NODE", 0), bytes[14] = (unsigned char)(slice + 1), bytes[15] = (unsigned char)card;
}
static inline void uuid_text(int card, int slice, char text[48]) {
    unsigned char b[16];
    uuid_bytes(card, slice, b);
    sprintf(text, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", slice < 0 ? "GPU" : "MIG", b[0],
            b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* NVLinks of each card that are up, and whether they lead to switches or to the other card of a pair. */
static inline int num_links(void) { return num_cards() > 1 ? (int)setting("PRETEND_NVLINKS", 18) : 0; }
static inline int links_lead_to(void) { return strcmp(text_setting("PRETEND_NVLINKS_TO", "switches"), "pairs") ? SWITCHES : PAIRS; }
#endif
