package dynamostore

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
)

// change is an update of an item, with its condition.
type change struct {
	names       map[string]string
	values      item
	set, remove []string
	only        string // an additional condition
	// if not nil: a claim at this position may also have been released as uncertain (rule 13)
	late *dedup.Position
}

func newChange() *change { return &change{names: make(map[string]string), values: make(item)} }

// name is the placeholder of an attribute in an expression: many attributes are reserved words.
func (c *change) name(attribute string) string {
	c.names["#"+attribute] = attribute
	return "#" + attribute
}

func (c *change) value(name string, v types.AttributeValue) string {
	c.values[":"+name] = v
	return ":" + name
}

func (c *change) to(attribute string, v types.AttributeValue) {
	c.set = append(c.set, c.name(attribute)+" = "+c.value(attribute, v))
}

func (c *change) plusOne(attribute string) {
	c.set = append(c.set, fmt.Sprintf("%s = if_not_exists(%[1]s, %s) + %s", c.name(attribute),
		c.value("none", number(0)), c.value("one", number(1))))
}

func (c *change) gone(attributes ...string) {
	for _, a := range attributes {
		c.remove = append(c.remove, c.name(a))
	}
}

// counts is the condition that a number is n. A number that is zero is left out of the item.
func (c *change) counts(attribute string, n uint32) string {
	if n == 0 {
		return fmt.Sprintf("attribute_not_exists(%s)", c.name(attribute))
	}
	return fmt.Sprintf("%s = %s", c.name(attribute), c.value(attribute+"Now", unsigned(n)))
}

// unchanged is the condition that the item is still r.
func (c *change) unchanged(r *record) string {
	return fmt.Sprintf("%s = %s AND %s = %s", c.name(aRev), c.value("rev", unsigned(r.rev)),
		c.name(aToken), c.value("token", binary(r.Token[:])))
}

func (c *change) expression() *string {
	e := "SET " + strings.Join(c.set, ", ")
	if len(c.remove) > 0 {
		e += " REMOVE " + strings.Join(c.remove, ", ")
	}
	return &e
}
